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
    error::{self, Failure},
    halves::in_halves,
    statement::{Arg, Statement, micros},
    table::Table,
};
use crate::{LockError, sync::lock, time::backoff::random};

/// How long the row of a free lock is kept. The row's version keeps the fencing tokens rising if the server's clock is
/// set back meanwhile.
const RETENTION: Duration = Duration::from_secs(48 * 60 * 60);
/// Number of new rows after which a page of the table is looked at: a table that does not grow needs no sweep.
const NEW_ROWS: u32 = 128;
/// Number of rows of a page: more than `NEW_ROWS`, so that the whole table is looked at again and again, however many
/// new names there are.
const PAGE: i64 = 512;

/// Upper bound on the statements that remove the rows of one page. There is a bound, because the other requests of a
/// session may wait for these statements. The bound is about twice the number of statements that one refused row needs.
const MAX_REMOVALS: u32 = 40;

/// The sweep of a table, and its progress.
#[derive(Debug)]
pub(crate) struct Sweeper {
    /// The statement that looks at a page of the table.
    pub(crate) look: Statement,
    /// The statement that removes rows.
    pub(crate) remove: Statement,
    /// The number of new rows, from a random start, so that many processes with few names sweep now and then.
    new_rows: AtomicU32,
    /// The last name that was looked at; empty at the beginning of the table.
    last: Mutex<String>,
}

impl Sweeper {
    pub(crate) fn of(table: &Table) -> Self {
        Self {
            look: Statement::of(include_str!("sql/sweep.sql"), table),
            remove: Statement::of(include_str!("sql/remove.sql"), table),
            new_rows: AtomicU32::new(random() % NEW_ROWS),
            last: Mutex::default(),
        }
    }

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

/// Calls `send` to remove the rows with these names. If the server refuses to remove a row, the other rows are removed
/// without the refused row, by at most [`MAX_REMOVALS`] statements.
///
/// # Errors
/// The failure of a statement that may have been executed, if there is one.
///
/// # Cancel safety
/// Like `send`.
pub(crate) async fn remove<'a, F>(
    names: &'a [String],
    send: impl Fn(&'a [String]) -> F,
) -> Result<(), LockError>
where
    F: Future<Output = Result<(), Failure>>,
{
    if names.is_empty() {
        return Ok(());
    }
    let statements = AtomicU32::new(0);
    let results = in_halves(names.len(), |part| {
        let names = &names[part];
        let answer = (statements.fetch_add(1, Ordering::Relaxed) < MAX_REMOVALS).then(|| send(names));
        async move {
            let too_many = || error::backend("the server refuses to remove too many rows");
            let Some(answer) = answer else { return Err(Failure::NotExecuted(too_many())) };
            answer.await.map(|()| vec![(); names.len()])
        }
    });
    let results = results.await;
    let removed = results.iter().filter(|result| result.is_ok()).count();
    tracing::debug!(removed, "rows of locks that have long been unused are removed");
    if let Some(failure) = results.iter().find_map(|result| result.as_ref().err()) {
        let (refused, error) = (results.len() - removed, LockError::from(failure.clone()));
        tracing::debug!(refused, %error, "rows of locks that have long been unused stay");
    }
    let unknown = |failure| if let Failure::Unknown(error) = failure { Some(error) } else { None };
    results.into_iter().filter_map(Result::err).find_map(unknown).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::BTreeSet, future::ready};

    use super::*;

    fn refused() -> LockError {
        error::backend("refused")
    }

    /// Removes the rows below 512, of which the server refuses some; returns the removed ones, and the number of statements.
    async fn removed(is_refused: impl Fn(&str) -> bool) -> (usize, u32) {
        let names: Vec<_> = (0..512).map(|number: u32| number.to_string()).collect();
        let seen = RefCell::new((BTreeSet::new(), 0));
        let send = |part: &[String]| {
            let (removed, statements) = &mut *seen.borrow_mut();
            *statements += 1;
            if part.iter().any(|name| is_refused(name)) {
                return ready(Err(Failure::Refused(refused())));
            }
            removed.extend(part.iter().cloned());
            ready(Ok(()))
        };
        remove(&names, send).await.expect("no answer is missing");
        let (removed, statements) = seen.into_inner();
        (removed.len(), statements)
    }

    #[tokio::test]
    async fn a_row_that_stays_keeps_no_other_and_a_page_has_a_bound() {
        assert_eq!(removed(|_| false).await, (512, 1));
        let (rows, statements) = removed(|name| name == "77").await;
        assert!(rows == 511 && statements <= MAX_REMOVALS, "{rows} rows, {statements} statements");
        // Most rows stay, and some do not.
        let (rows, statements) = removed(|name| !name.ends_with('7')).await;
        assert!(rows > 0 && statements == MAX_REMOVALS, "{rows} rows, {statements} statements");
        assert_eq!(removed(|_| true).await, (0, MAX_REMOVALS));
    }

    #[tokio::test]
    async fn an_answer_that_is_missing_is_reported() {
        let names = ["a".to_owned(), "b".to_owned()];
        let error = remove(&names, |_| ready(Err(Failure::Unknown(refused())))).await.expect_err("missing");
        assert_eq!(error.to_string(), "refused");
    }
}
