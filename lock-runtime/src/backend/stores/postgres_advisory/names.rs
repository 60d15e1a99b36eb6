//! The names of a lock on the server.

use std::sync::Arc;

use sqlx::postgres::PgAdvisoryLock;

use crate::{LockKey, backend::kits::postgres::table::sha256};

/// What the names of rows begin with.
pub(super) const ROWS: &str = "advisory\t";
/// What the names of the rows of periods begin with.
const PERIODS: &str = "period\t";
/// The first of the two numbers of each session's mark, an advisory lock of two numbers: `lock` in ASCII.
pub(super) const KIND_OF_MARKS: i64 = 0x6c6f_636b;

/// Returns the name of the row of a period's mark.
pub(super) fn mark(key: &LockKey) -> String {
    format!("{PERIODS}{}", key.stored())
}

/// A lock, as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// The number of the advisory lock, the same as `sqlx` makes of the name.
    pub(super) number: i64,
    /// The name of the lock's row. No lock of `postgres:` has such a name, because a key has no control character.
    pub(super) row: Arc<str>,
    /// The payload of the notification of the lock's release.
    pub(super) payload: Arc<str>,
}

impl Name {
    pub(super) fn of(key: &LockKey) -> Self {
        let lock = PgAdvisoryLock::new(key.stored());
        let number = lock.key().as_bigint().expect("a lock of a name has one number");
        let row = format!("{ROWS}{}", key.stored());
        Self { number, payload: sha256(&row).into(), row: row.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that have been published must not change: two versions would not exclude each other.
    #[test]
    fn a_name_has_the_number_that_sqlx_gives_it() {
        let name = Name::of(&LockKey::with_prefix("", "user:42").expect("valid"));
        assert_eq!(name.row.as_ref(), "advisory\tuser:42");
        assert_eq!(name.number, -2_024_187_153_069_054_315);
    }
}
