//! A connection whose session is its own.
//!
//! Behind a pooler that gives each transaction another session of the server, a `LISTEN` would go on in a session of other
//! clients, and so would an advisory lock. So it is first found out whether the connection keeps its session while another
//! one is in a transaction. Then it is sent a notification, unless the server refuses that.

use std::{pin::pin, time::Duration};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Decode, Executor, PgConnection, Row, Type,
    pool::PoolOptions,
    postgres::{PgListener, Postgres},
};
use tokio::time::timeout;

use super::{config::Config, error::Meaning};
use crate::OwnerToken;

/// How often the session is compared with that of another connection.
const SWAPS: u32 = 3;
/// How full the server's queue of notifications may be, from 0 to 1, for a session to begin to listen.
const MAX_USAGE: f64 = 0.05;
/// How long to wait for our own notification before the connection counts as one behind a pooler.
const PROOF: Duration = Duration::from_millis(500);

/// The session that a connection has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Session {
    /// One that began with the connection. It listens.
    New,
    /// Perhaps one that a pooler has lent to others before. It does not listen: the server does nothing else while it waits
    /// to send notifications to a client that does not read, and does not end the session of a silent one.
    Own,
}

/// A connection, as it was found.
pub(crate) enum Found {
    /// Its session is its own, and notifications arrive.
    Notified(PgListener),
    /// As far as can be seen, its session is its own, but the server refuses to notify, for this reason.
    Unnotified(PgListener, String),
    /// It has no session of its own.
    Pooled,
}

/// Connects.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn connect(channel: &str, config: &Config, session: Session) -> Result<Found, sqlx::Error> {
    let options = config.current().await.map_err(|error| sqlx::Error::Configuration(error.into()))?;
    let mut other: PgConnection = options.connect().await?;
    let now: String = value(&mut other, "SELECT clock_timestamp()::text").await?;
    // The pool has this connection alone, and makes no other: a new one has to be proved. It keeps none.
    let pool = PoolOptions::<Postgres>::new()
        .max_connections(1)
        .after_release(|_, _| Box::pin(async { Ok(false) }))
        .connect_lazy_with(options);
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.ignore_pool_close_event(true);
    listener.eager_reconnect(false);
    // A pooler mostly lends a session that has been there before.
    let is_new = format!(
        "SELECT backend_start >= '{now}'::timestamptz FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    );
    if session == Session::New && !value::<bool>(&mut listener, &is_new).await? {
        return Ok(Found::Pooled);
    }
    for _ in 0..SWAPS {
        const SESSION: &str = "SELECT pg_backend_pid()";
        // Or it has made a new one, which it then lends to the next transaction.
        let before: i32 = value(&mut listener, SESSION).await?;
        let mut transaction = other.begin().await?;
        let others: i32 = value(&mut *transaction, SESSION).await?;
        let after = {
            let mut after = pin!(value::<i32>(&mut listener, SESSION));
            let Ok(after) = timeout(PROOF, &mut after).await else {
                // The transaction may have the only session of a pooler. If the server is slow, its answer comes late, too.
                let _: i32 = value(&mut *transaction, SESSION).await?;
                if timeout(PROOF, after).await.is_err() {
                    return Ok(Found::Pooled);
                }
                continue;
            };
            after?
        };
        transaction.rollback().await?;
        if before != after || before == others {
            return Ok(Found::Pooled);
        }
    }
    // A session that begins to listen reads first what another one of its database has not read yet: up to 8 GB.
    // A user who may not ask for that may listen.
    let usage: f64 = value(&mut other, "SELECT pg_notification_queue_usage()").await.unwrap_or_default();
    if usage > MAX_USAGE {
        other.close().await?;
        let cause =
            format!("their queue is filled to {:.0} %: a session that listens does not read", usage * 100.0);
        return Ok(Found::Unnotified(listener, cause));
    }
    listener.listen(channel).await?;
    let proof = format!("proof {:016x}", OwnerToken::random().expose() >> 64);
    // As a release does, and without a wait for a transaction that is about to notify.
    let notify = format!(
        "SET LOCAL lock_timeout = '{}ms'; SELECT pg_notify('{channel}', '{proof}')",
        PROOF.as_millis()
    );
    let refusal = match other.execute(sqlx::raw_sql(AssertSqlSafe(notify))).await {
        Ok(_) => None,
        Err(error) if matches!(Meaning::of(&error), Meaning::Refused | Meaning::Locked) => Some(error),
        Err(error) => return Err(error),
    };
    let arrives = refusal.is_none() && receives(&mut listener, &proof).await?;
    if session == Session::Own {
        listener.unlisten_all().await?;
    }
    other.close().await?;
    Ok(match refusal {
        Some(refusal) => Found::Unnotified(listener, refusal.to_string()),
        None if arrives => Found::Notified(listener),
        None => Found::Pooled,
    })
}

/// Waits for a notification with this payload; returns whether it came.
async fn receives(listener: &mut PgListener, payload: &str) -> Result<bool, sqlx::Error> {
    let arrives = timeout(PROOF, async {
        loop {
            match listener.try_recv().await? {
                Some(message) if message.payload() == payload => return Ok(true),
                Some(_) => {}
                None => return Err(sqlx::Error::PoolClosed),
            }
        }
    });
    arrives.await.unwrap_or(Ok(false))
}

/// Returns the only value of a query without parameters. It is not prepared.
pub(crate) async fn value<'c, T>(
    executor: impl Executor<'c, Database = Postgres>,
    query: &str,
) -> Result<T, sqlx::Error>
where
    T: for<'r> Decode<'r, Postgres> + Type<Postgres>,
{
    executor.fetch_one(sqlx::raw_sql(AssertSqlSafe(query.to_owned()))).await?.try_get(0)
}
