//! Removing the rows of locks that were not used for long.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use sqlx::{Row, postgres::PgRow};

use super::statement::Arg;
use crate::{sync::lock, time::backoff::random};

/// How long the row of a free lock is kept. Its version keeps the fencing tokens rising if the server's clock is set
/// back meanwhile.
const RETENTION: Duration = Duration::from_secs(48 * 60 * 60);
/// A page of the table is looked at after so many new rows: a table that does not grow needs no sweep.
const NEW_ROWS: u32 = 128;
/// Rows of a page: more than the new ones before it, so that the whole table is looked at again and again however many new
/// names there are.
const PAGE: i64 = 512;

/// The statement that looks at a page of the table.
pub(crate) const SQL: &str = include_str!("sql/sweep.sql");

/// Where the sweep of a table stands.
#[derive(Debug)]
pub(crate) struct Sweeper {
    /// The new rows since the last sweep. It begins anywhere, so that many processes with few names sweep now and then.
    new_rows: AtomicU32,
    /// The last name that was looked at; empty at the beginning of the table.
    last: Mutex<String>,
}

impl Default for Sweeper {
    fn default() -> Self {
        Self { new_rows: AtomicU32::new(random() % NEW_ROWS), last: Mutex::default() }
    }
}

impl Sweeper {
    /// Counts a new row; returns the arguments of the statement that looks at a page of the table if it is time.
    pub(crate) fn grown(&self) -> Option<Vec<Arg<'static>>> {
        (self.new_rows.fetch_add(1, Ordering::Relaxed) % NEW_ROWS == NEW_ROWS - 1).then(|| {
            let retention = i64::try_from(RETENTION.as_micros()).unwrap_or(i64::MAX);
            vec![Arg::Text(lock(&self.last).clone().into()), Arg::Number(PAGE), Arg::Number(retention)]
        })
    }

    /// Notes the answer to that statement.
    pub(crate) fn swept(&self, rows: &[PgRow]) {
        let read = |row: &PgRow| -> Result<_, sqlx::Error> {
            Ok((row.try_get::<Option<String>, _>("last")?, row.try_get::<i64, _>("removed")?))
        };
        let Some(Ok((last, removed))) = rows.first().map(read) else { return };
        // After the last page, from the beginning.
        *lock(&self.last) = last.unwrap_or_default();
        if removed > 0 {
            tracing::debug!(removed, "rows of locks that were not used for long are removed");
        }
    }
}
