//! The answer to the statement that tries to take locks.

use sqlx::{Row, postgres::PgRow};

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
