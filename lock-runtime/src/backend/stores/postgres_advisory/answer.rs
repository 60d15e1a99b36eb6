//! The answers to the statements of a session's keeper.

use sqlx::{Row, postgres::PgRow};

use crate::{
    LockError,
    backend::kits::postgres::error::{Failure as OfStatement, not_understood},
};

/// Why a statement has no answer.
pub(super) enum Failure {
    /// The server refused the statement, which says nothing about the session.
    Refused(LockError),
    /// The statement met a transaction that locks the row or the table.
    Locked(LockError),
    /// The session is over.
    Over(LockError),
}

impl From<Failure> for OfStatement {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) => Self::Refused(error),
            Failure::Locked(error) => Self::Locked(error),
            Failure::Over(error) => Self::Unknown(error),
        }
    }
}

impl From<Failure> for LockError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) | Failure::Locked(error) | Failure::Over(error) => error,
        }
    }
}

/// The outcome of an attempt to take a lock.
#[derive(Clone, Copy)]
pub(super) enum Tried {
    Held,
    /// The lock is taken, with its new version.
    Raised(i64),
    /// The lock is taken, with the version of a new row.
    Created(i64),
    /// The lock is taken, but its row is locked, or was removed at that moment.
    NoRow,
}

impl Tried {
    pub(super) fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let version = row.try_get::<Option<i64>, _>("version")?;
        Ok(match version {
            Some(version) => Self::Raised(version),
            None if row.try_get("taken")? => Self::NoRow,
            None => Self::Held,
        })
    }
}

/// Reads each row. An answer that is not understood tells as little as a refusal.
pub(super) fn each<T>(
    rows: &[PgRow],
    read: impl Fn(&PgRow) -> Result<T, sqlx::Error>,
) -> Result<Vec<T>, Failure> {
    rows.iter().map(read).collect::<Result<_, _>>().map_err(|error| Failure::Refused(not_understood(error)))
}
