//! What operators see of the advisory locks, and how a lock is taken from its holder.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use sqlx::{Row, postgres::PgRow};

use super::{
    PostgresAdvisory,
    names::{Name, ROWS},
    session,
    shared::Shared,
};
use crate::{
    FencingToken, LockError, LockErrorKind, LockHolder, LockKey, LockWaiter,
    backend::{
        BoxFuture, Examination, Examined, LockState, Operate, Page, Revoke, Revoked, Scan,
        common::{hex, signature},
        kits::postgres::{
            connections::{Lane, detached},
            error::{backend, not_understood, permanent},
            examine::{Needs, examine},
            notices::NOTICE_PERIOD,
            revocations,
            statement::{Arg, micros},
        },
    },
};

/// Number of rows of a page of a scan. Each page costs the server a copy of all its locks.
const PAGE: i64 = 2_048;
/// Upper bound on the advisory locks of the database during a scan. The server copies so many in less than 10 ms, during
/// which no session of the server can take or give back an advisory lock.
const MAX_COPIED: i64 = 10_000;

impl Operate for PostgresAdvisory {
    fn inspect<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState, LockError>> {
        let (shared, key) = (Arc::clone(self.link.sessions()), key.clone());
        Box::pin(async { detached(inspect(shared, key)).await })
    }

    fn scan<'a>(&'a self, scan: &'a Scan) -> BoxFuture<'a, Result<Page, LockError>> {
        let (shared, scan) = (Arc::clone(self.link.sessions()), scan.clone());
        Box::pin(async { detached(page(shared, scan)).await })
    }

    fn revoke<'a>(&'a self, revocation: &'a Revoke) -> BoxFuture<'a, Result<Revoked, LockError>> {
        let (shared, revocation) = (Arc::clone(self.link.sessions()), revocation.clone());
        Box::pin(async { detached(revoke(shared, revocation)).await })
    }

    fn examine<'a>(&'a self, _: &'a Examination) -> BoxFuture<'a, Result<Examined, LockError>> {
        Box::pin(async {
            // A session finds out what the connections of operators do not need.
            self.link.session().await?.ping().await?.ok_or_else(session::ended)?;
            let shared = Arc::clone(self.link.sessions());
            let examined = async move {
                let Shared { operators, notices, config, .. } = &*shared;
                let needs = Needs::Sessions { timeout: config.session_timeout };
                examine(operators, &notices.channel, needs).await
            };
            detached(examined).await
        })
    }
}

async fn inspect(shared: Arc<Shared>, key: LockKey) -> Result<LockState, LockError> {
    let name = Name::of(&key);
    let args = |_| vec![micros(NOTICE_PERIOD), Arg::Number(name.number), Arg::Text(name.row.as_ref().into())];
    let answer = shared.operators.run(Lane::Here, &shared.statements.inspect, args).await?;
    let mut state = LockState::free(key.clone());
    for row in &answer.rows {
        add(&mut state, row).map_err(not_understood)?;
    }
    Ok(state)
}

/// Adds a holder, which a row with the columns of `sql/state.sql` describes.
fn add(state: &mut LockState, row: &PgRow) -> Result<(), sqlx::Error> {
    let is_ours: bool = row.try_get("is_ours")?;
    let application: Option<String> = row.try_get("application")?;
    let application = application.unwrap_or_default().replace(char::is_control, "_");
    let mut holder = LockHolder::new().with_client(application);
    if row.try_get("is_described")? {
        let text: String = row.try_get("holder")?;
        let signature = signature::read(&text);
        let version = u64::try_from(row.try_get::<i64, _>("version")?).unwrap_or_default();
        holder = LockHolder::new()
            .with_client(signature.client)
            .with_label(signature.label)
            // The version is the server's time at the grant.
            .with_since(Some(SystemTime::UNIX_EPOCH + Duration::from_micros(version)))
            .with_token(FencingToken::from_micros(version));
        if row.try_get("is_revoked")? {
            holder = holder.revoked();
        }
    } else if !is_ours {
        holder = holder.foreign();
    }
    let held = LockState::held(state.key.clone(), holder);
    state.mode = held.mode;
    state.holders.extend(held.holders);
    if let Some(text) = row.try_get::<Option<String>, _>("waiter")? {
        let signature = signature::read(&text);
        state.waiters = vec![LockWaiter::new().with_client(signature.client).with_label(signature.label)];
    }
    Ok(())
}

/// Reads the next rows of the table, in the order of their names. The locks of a scan stand together.
async fn page(shared: Arc<Shared>, scan: Scan) -> Result<Page, LockError> {
    let beginning = hex::text(format!("{ROWS}{}", scan.stored()).as_bytes());
    let from = scan.from.as_deref().unwrap_or(&beginning);
    if from.bytes().any(|byte| !byte.is_ascii_hexdigit()) || !from.len().is_multiple_of(2) {
        return Err(LockError::new(LockErrorKind::InvalidOptions, "not a page of this store"));
    }
    let args = |_| vec![micros(NOTICE_PERIOD), Arg::Text(from.to_owned().into()), Arg::Number(PAGE)];
    let answer = shared.operators.run(Lane::Here, &shared.statements.scan, args).await?;
    let (mut locks, mut next) = (Vec::<LockState>::new(), None);
    for row in &answer.rows {
        check_copied(row.try_get("copied").map_err(not_understood)?)?;
        let place: String = row.try_get("place").map_err(not_understood)?;
        // The page before has ended with the row with which this page begins.
        if row.try_get("is_held").map_err(not_understood)? && scan.from.as_ref() != Some(&place) {
            // A name that is no text, and a row that is not understood, is no lock of this library.
            let name = row.try_get::<&str, _>("name").ok().and_then(|name| name.strip_prefix(ROWS));
            if let Some(key) = name.and_then(|name| scan.key(name)) {
                // Several sessions of other programs may share the lock.
                if let Some(lock) = locks.last_mut().filter(|lock| lock.key == key) {
                    let _ = add(lock, row);
                } else {
                    let mut lock = LockState::free(key);
                    locks.extend(add(&mut lock, row).is_ok().then_some(lock));
                }
            }
        }
        let size: i64 = row.try_get("size").map_err(not_understood)?;
        if row.try_get("is_last").map_err(not_understood)? && size == PAGE && place.starts_with(&beginning) {
            next = Some(place);
        }
    }
    Ok(Page::new(locks, next))
}

fn check_copied(locks: i64) -> Result<(), LockError> {
    if locks <= MAX_COPIED {
        return Ok(());
    }
    let message = format!(
        "the database cannot be scanned: its sessions have {locks} advisory locks, and PostgreSQL lists only all of them at \
         once, during which no session can take or give back one; the limit is {MAX_COPIED}; inspect single locks, or use \
         the query in the documentation of the store, which makes one list"
    );
    Err(LockError::new(LockErrorKind::Unsupported, message))
}

async fn revoke(shared: Arc<Shared>, revoke: Revoke) -> Result<Revoked, LockError> {
    let name = Name::of(&revoke.key);
    let version = match revoke.token {
        // A session lock has one token.
        Some(token) if FencingToken::from_micros(token.micros()) == token => {
            Some(i64::try_from(token.micros()).unwrap_or(i64::MAX))
        }
        Some(_) => return Ok(Revoked::NotHeld),
        None => None,
    };
    let [number, row] = [Arg::Number(name.number), Arg::Text(name.row.as_ref().into())];
    let Shared { operators, notices, statements, .. } = &*shared;
    match version {
        Some(version) if !revoke.is_forced => {
            let args = [number, row, Arg::Number(version)];
            let revoked = revocations::revoke(operators, notices, &statements.revoke, &args, false).await?;
            if revoked == Revoked::Revoked {
                revocations::announce(operators, &shared.revocations).await;
            }
            Ok(revoked)
        }
        None if !revoke.is_forced => Ok(Revoked::NotHeld),
        version => end_sessions(&shared, [number, row, Arg::OptionalNumber(version)]).await,
    }
}

/// Ends the session that has the lock by this grant, or without a version, the sessions of other programs that have it.
async fn end_sessions(shared: &Shared, [number, row, version]: [Arg<'_>; 3]) -> Result<Revoked, LockError> {
    let Shared { operators, notices, statements, .. } = shared;
    let config = &operators.config;
    let limit = i64::try_from(config.lock_timeout().as_millis()).unwrap_or(i64::MAX).max(1);
    let args = |_| vec![number.clone(), row.clone(), version.clone(), Arg::Number(limit)];
    let answer = operators.run(Lane::Here, &statements.force, args).await?;
    if let Some(refusal) = &answer.unnotified {
        notices.refused(refusal);
    }
    for row in &answer.rows {
        if !row.try_get("may_end").map_err(not_understood)? {
            let user = config.options.get_username().replace('"', "\"\"");
            return Err(permanent(format!(
                "the user may not end the session that has the lock; a superuser can allow it, except for the sessions of \
                 superusers: GRANT pg_signal_backend TO \"{user}\";"
            )));
        }
        let has_ended: Option<bool> = row.try_get("has_ended").map_err(not_understood)?;
        if has_ended != Some(true) {
            let limit = config.lock_timeout();
            return Err(backend(format!(
                "the session that has the lock was told to end, and lasts after {limit:?}"
            )));
        }
    }
    match answer.rows.len() {
        // A statement that the server has refused because of its notice may have ended a session before.
        0 if answer.repeated || answer.unnotified.is_some() => Err(backend(
            "the answer to the first request is lost, and the lock is no longer held by this grant; it may have been freed",
        )),
        0 => Ok(Revoked::NotHeld),
        _ => Ok(Revoked::Revoked),
    }
}
