//! What operators see of the locks in the table, and how a lock is taken from its holder.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use sqlx::{Row, postgres::PgRow};

use super::{Postgres, shared::Shared};
use crate::{
    FencingToken, LockError, LockErrorKind, LockHolder, LockKey, LockWaiter,
    backend::{
        BoxFuture, Examination, Examined, LockState, Operate, Page, Revoke, Revoked, Scan,
        common::signature,
        kits::postgres::{
            connections::{Lane, detached},
            error::not_understood,
            examine::{Needs, examine},
            notices::NOTICE_PERIOD,
            revocations,
            statement::{Arg, micros},
        },
    },
};

/// Number of rows of a page of a scan.
const PAGE: i64 = 512;
/// Leases that last longer are shown as endless.
const ENDLESS: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A holder as a row describes it.
pub(super) struct Described {
    /// The text that the holder's process has written.
    pub(super) signature: String,
    pub(super) version: u64,
    pub(super) remaining: Option<Duration>,
    pub(super) is_revoked: bool,
}

impl Described {
    pub(super) fn shown(self) -> LockHolder {
        let signature = signature::read(&self.signature);
        let holder = LockHolder::new()
            .with_client(signature.client)
            .with_label(signature.label)
            // The version is the server's time at the grant.
            .with_since(Some(SystemTime::UNIX_EPOCH + Duration::from_micros(self.version)))
            .with_remaining(Some(self.remaining.unwrap_or(Duration::MAX)))
            .with_token(FencingToken::from_micros(self.version));
        if self.is_revoked { holder.revoked() } else { holder }
    }
}

impl Operate for Postgres {
    fn inspect<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState, LockError>> {
        let (shared, key) = (Arc::clone(&self.shared), key.clone());
        Box::pin(async { detached(inspect(shared, key)).await })
    }

    fn scan<'a>(&'a self, scan: &'a Scan) -> BoxFuture<'a, Result<Page, LockError>> {
        let (shared, scan) = (Arc::clone(&self.shared), scan.clone());
        Box::pin(async { detached(page(shared, scan)).await })
    }

    fn revoke<'a>(&'a self, revocation: &'a Revoke) -> BoxFuture<'a, Result<Revoked, LockError>> {
        let (shared, revocation) = (Arc::clone(&self.shared), revocation.clone());
        Box::pin(async { detached(revoke(shared, revocation)).await })
    }

    fn examine<'a>(&'a self, examination: &'a Examination) -> BoxFuture<'a, Result<Examined, LockError>> {
        let (shared, ttl) = (Arc::clone(&self.shared), examination.ttl);
        Box::pin(async move {
            let examined = async move {
                let Shared { connections, notices, .. } = &*shared;
                examine(connections, &notices.channel, Needs::Rows { ttl }).await
            };
            detached(examined).await
        })
    }
}

async fn inspect(shared: Arc<Shared>, key: LockKey) -> Result<LockState, LockError> {
    let args = |_| vec![micros(NOTICE_PERIOD), Arg::Text(key.stored().into())];
    let answer = shared.connections.run(Lane::Here, &shared.statements.inspect, args).await?;
    let Some(row) = answer.rows.first() else { return Ok(LockState::free(key.clone())) };
    state(row, key.clone()).map_err(not_understood)
}

/// Reads a row with the columns of `sql/state.sql`.
fn state(row: &PgRow, key: LockKey) -> Result<LockState, sqlx::Error> {
    let remaining = Duration::from_micros(positive(row.try_get("remaining")?));
    let described = Described {
        signature: row.try_get("holder")?,
        version: positive(row.try_get("version")?),
        remaining: Some(remaining).filter(|remaining| *remaining < ENDLESS),
        is_revoked: row.try_get("is_revoked")?,
    };
    let waiter = row.try_get::<Option<String>, _>("waiter")?;
    let waiter = waiter.map(|text| {
        let signature = signature::read(&text);
        LockWaiter::new().with_client(signature.client).with_label(signature.label)
    });
    Ok(LockState::held(key, described.shown()).with_waiters(waiter.into_iter().collect()))
}

fn positive(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// Reads the next rows of the table, in the order of their names. The locks of a scan stand together.
async fn page(shared: Arc<Shared>, scan: Scan) -> Result<Page, LockError> {
    let beginning = hex(&scan.stored());
    let from = scan.from.as_deref().unwrap_or(&beginning);
    if from.bytes().any(|byte| !byte.is_ascii_hexdigit()) || !from.len().is_multiple_of(2) {
        return Err(LockError::new(LockErrorKind::InvalidOptions, "not a page of this store"));
    }
    let args = |_| vec![micros(NOTICE_PERIOD), Arg::Text(from.to_owned().into()), Arg::Number(PAGE)];
    let answer = shared.connections.run(Lane::Here, &shared.statements.scan, args).await?;
    let (mut locks, mut next) = (Vec::new(), None);
    for row in &answer.rows {
        let place: String = row.try_get("place").map_err(not_understood)?;
        // The page before has ended with the row with which this page begins.
        if row.try_get("is_held").map_err(not_understood)? && scan.from.as_ref() != Some(&place) {
            // A name that is no text, and a row that is not understood, is no lock of this library.
            let key = row.try_get::<&str, _>("name").ok().and_then(|name| scan.key(name));
            locks.extend(key.and_then(|key| state(row, key).ok()));
        }
        let size: i64 = row.try_get("size").map_err(not_understood)?;
        if row.try_get("is_last").map_err(not_understood)? && size == PAGE && place.starts_with(&beginning) {
            next = Some(place);
        }
    }
    Ok(Page::new(locks, next))
}

fn hex(text: &str) -> String {
    crate::backend::common::hex::text(text.as_bytes())
}

async fn revoke(shared: Arc<Shared>, revoke: Revoke) -> Result<Revoked, LockError> {
    // Each holder in the table is a client of this library.
    let Some(token) = revoke.token else { return Ok(Revoked::NotHeld) };
    let version = i64::try_from(token.micros()).unwrap_or(i64::MAX);
    let Shared { connections, notices, statements, .. } = &*shared;
    let statement = if revoke.is_forced { &statements.force } else { &statements.revoke };
    let args = [Arg::Text(revoke.key.stored().into()), Arg::Number(version)];
    let revoked = revocations::revoke(connections, notices, statement, &args, revoke.is_forced).await?;
    if revoked == Revoked::Revoked {
        revocations::announce(connections, &shared.revocations.statements).await;
    }
    Ok(revoked)
}
