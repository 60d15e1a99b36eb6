//! The answers to the statements about locks.

use sqlx::{Row, postgres::PgRow};

use super::names::Name;
use crate::backend::kits::postgres::{error::Failure, statement::read_rows};

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

/// Reads a row for each name. An answer that cannot be read is treated as a refusal, because both leave open whether
/// the locks were taken or given back.
pub(super) fn read_answer<T>(
    rows: &[PgRow],
    names: &[Name],
    read: impl Fn(&PgRow) -> Result<T, sqlx::Error>,
) -> Result<Vec<T>, Failure> {
    read_rows(rows, names.len(), read).map_err(Failure::Refused)
}
