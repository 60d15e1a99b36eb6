//! Removes the rows of locks that have long been unused.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use sqlx::{Row, postgres::PgRow};

use super::{
    error::Failure,
    statement::{Arg, micros},
};
use crate::{sync::lock, time::backoff::random};

/// How long the row of a free lock is kept. The row's version keeps the fencing tokens rising if the server's clock is
/// set back meanwhile.
const RETENTION: Duration = Duration::from_secs(48 * 60 * 60);
/// Number of new rows after which a page of the table is looked at: a table that does not grow needs no sweep.
const NEW_ROWS: u32 = 128;
/// Number of rows of a page: more than `NEW_ROWS`, so that the whole table is looked at again and again, however many
/// new names there are.
const PAGE: i64 = 512;

/// The statement that looks at a page of the table.
pub(crate) const SQL: &str = include_str!("sql/sweep.sql");
/// The statement that removes rows.
pub(crate) const REMOVE_SQL: &str = include_str!("sql/remove.sql");

/// The progress of the sweep of a table.
#[derive(Debug)]
pub(crate) struct Sweeper {
    /// The number of new rows, from a random start, so that many processes with few names sweep now and then.
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
    /// Counts a new row; returns whether it is time to look at a page of the table.
    pub(crate) fn grown(&self) -> bool {
        self.new_rows.fetch_add(1, Ordering::Relaxed) % NEW_ROWS == NEW_ROWS - 1
    }

    /// Returns the arguments of the statement that looks at the next page.
    pub(crate) fn page(&self) -> Vec<Arg<'static>> {
        vec![Arg::Text(lock(&self.last).clone().into()), Arg::Number(PAGE), micros(RETENTION)]
    }

    /// Notes the answer to the statement that looks at a page; returns the names of the rows to remove.
    pub(crate) fn old(&self, page: &[PgRow]) -> Vec<String> {
        let read = |row: &PgRow| -> Result<(String, bool), sqlx::Error> {
            Ok((row.try_get("name")?, row.try_get("is_old")?))
        };
        let Ok(rows) = page.iter().map(read).collect::<Result<Vec<_>, _>>() else { return Vec::new() };
        // After the last page, the sweep begins again.
        *lock(&self.last) = rows.last().map(|(name, _)| name.clone()).unwrap_or_default();
        rows.into_iter().filter_map(|(name, is_old)| is_old.then_some(name)).collect()
    }
}

/// Returns the arguments of the statement that removes rows.
pub(crate) fn removal(names: &[String]) -> Vec<Arg<'_>> {
    vec![Arg::Texts(names.iter().map(String::as_str).collect()), micros(RETENTION)]
}

/// Logs how many rows were removed.
pub(crate) fn removed(results: &[Result<(), Failure>]) {
    let removed = results.iter().filter(|result| result.is_ok()).count();
    tracing::debug!(removed, "rows of locks that have long been unused are removed");
    if let Some(failure) = results.iter().find_map(|result| result.as_ref().err()) {
        let (refused, error) = (results.len() - removed, failure.clone().into_error());
        tracing::debug!(refused, %error, "rows of locks that have long been unused stay");
    }
}
