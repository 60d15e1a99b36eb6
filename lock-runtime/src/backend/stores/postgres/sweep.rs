//! Removing the rows of locks that were not used for long.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use sqlx::Row;

use super::{connections::Lane, shared::Shared, statement::Arg};
use crate::sync::lock;

/// How long the row of a free lock is kept. Its version keeps the fencing tokens rising if the server's clock is set
/// back meanwhile.
const RETENTION: Duration = Duration::from_secs(48 * 60 * 60);
/// A page of the table is looked at after so many grants.
const GRANTS: u64 = 128;
/// Rows of a page: more than the grants before it, so that the whole table is looked at again and again however many new
/// names there are.
const PAGE: i64 = 512;

/// Counts a grant; looks at a page of the table in the background if it is time.
pub(super) fn granted(shared: &Arc<Shared>) {
    if shared.sweeper.grants.fetch_add(1, Ordering::Relaxed) % GRANTS == GRANTS - 1 {
        tokio::spawn(sweep(Arc::clone(shared)));
    }
}

async fn sweep(shared: Arc<Shared>) {
    let last = lock(&shared.sweeper.last).clone();
    let retention = i64::try_from(RETENTION.as_micros()).unwrap_or(i64::MAX);
    let args = |_| vec![Arg::Text(last.clone()), Arg::Number(PAGE), Arg::Number(retention)];
    let swept = shared.connections.run(Lane::Here, &shared.statements.sweep, args).await;
    let read = |row: &sqlx::postgres::PgRow| -> Result<_, sqlx::Error> {
        Ok((row.try_get::<Option<String>, _>("last")?, row.try_get::<i64, _>("removed")?))
    };
    let Ok(swept) = swept else { return };
    let Some(Ok((last, removed))) = swept.rows.first().map(read) else { return };
    // After the last page, from the beginning.
    *lock(&shared.sweeper.last) = last.unwrap_or_default();
    if removed > 0 {
        tracing::debug!(removed, "rows of locks that were not used for long are removed");
    }
}
