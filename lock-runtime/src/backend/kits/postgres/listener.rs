//! A connection whose session is its own.
//!
//! Behind a pooler that gives each transaction another session of the server, a `LISTEN` would go on in a session of
//! other clients, and so would an advisory lock. Therefore, each connection is tested in two steps. First, the
//! connection has to keep its session while another connection is in a transaction. Then, a notification has to reach
//! the connection, unless the server refuses to notify.

use std::{io, pin::pin, time::Duration};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Decode, Executor, PgConnection, Row, Type,
    pool::PoolOptions,
    postgres::{PgListener, Postgres},
};
use tokio::time::timeout;

use super::{config::Config, error::Meaning};
use crate::OwnerToken;

/// Number of times that the session is compared with the session of another connection.
const SWAPS: u32 = 3;
/// How full the server's queue of notifications may be, from 0 to 1, for a session to begin to listen.
const MAX_USAGE: f64 = 0.05;
/// How long to wait for our own notification before the connection counts as one behind a pooler.
const PROOF: Duration = Duration::from_millis(500);

/// The session that a connection has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Session {
    /// A session that began with the connection, and that listens.
    New,
    /// A session that stays with the connection, but that a pooler may have lent to other clients before. After the
    /// test, the session no longer listens. While a server waits to send a notification to a client that does not read,
    /// the server does not end the client's session, however long the client is silent.
    Own,
}

/// A connection, by the kind of its session.
pub(crate) enum Found {
    /// The connection's session is its own, and notifications arrive.
    Notified(PgListener),
    /// As far as can be seen, the connection's session is its own, but the server refuses to notify, for this reason.
    Unnotified(PgListener, String),
    /// The connection has no session of its own.
    Pooled,
}

/// Connects, and finds out whether the connection's session is its own.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn connect(channel: &str, config: &Config, session: Session) -> Result<Found, sqlx::Error> {
    let options = config.current().await.map_err(|error| sqlx::Error::Configuration(error.into()))?;
    let mut other: PgConnection = options.connect().await?;
    let now: String = value(&mut other, "SELECT clock_timestamp()::text").await?;
    // The pool makes only one connection at a time, and closes a connection after its use. Otherwise, the pool could
    // give the listener a connection that was not tested, and that has no session of its own.
    let pool = PoolOptions::<Postgres>::new()
        .max_connections(1)
        .after_release(|_, _| Box::pin(async { Ok(false) }))
        .connect_lazy_with(options);
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.ignore_pool_close_event(true);
    listener.eager_reconnect(false);
    // A pooler mostly lends a session that is older than the connection.
    let is_new = format!(
        "SELECT backend_start >= '{now}'::timestamptz FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    );
    if session == Session::New && !value::<bool>(&mut listener, &is_new).await? {
        return Ok(Found::Pooled);
    }
    for _ in 0..SWAPS {
        const SESSION: &str = "SELECT pg_backend_pid()";
        // If a pooler makes a new session for this query, it lends that session to the next transaction.
        let before: i32 = value(&mut listener, SESSION).await?;
        let mut transaction = other.begin().await?;
        let others: i32 = value(&mut *transaction, SESSION).await?;
        let after = {
            let mut after = pin!(value::<i32>(&mut listener, SESSION));
            let Ok(after) = timeout(PROOF, &mut after).await else {
                // Either the transaction uses the only session of a pooler, or the server is slow. To tell the two
                // cases apart, the transaction makes a query: once a slow server has answered the transaction's query,
                // the server soon answers the listener's query, too.
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
    // When a session begins to listen, the server reads for this session all notifications, up to 8 GB, that another
    // session of the same database has not read yet. If the user has no right to ask for the usage of the queue, the
    // usage counts as 0, so that the session listens.
    let usage: f64 = value(&mut other, "SELECT pg_notification_queue_usage()").await.unwrap_or_default();
    if usage > MAX_USAGE {
        other.close().await?;
        let cause =
            format!("their queue is filled to {:.0} %: a session that listens does not read", usage * 100.0);
        return Ok(Found::Unnotified(listener, cause));
    }
    listener.listen(channel).await?;
    let proof = format!("proof {:016x}", OwnerToken::random().expose() >> 64);
    // Like the notification of a release, the proof is sent with `pg_notify`. The lock timeout keeps the proof from
    // waiting long for a transaction that is about to notify.
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
                // The connection broke.
                None => return Err(sqlx::Error::Io(io::ErrorKind::UnexpectedEof.into())),
            }
        }
    });
    arrives.await.unwrap_or(Ok(false))
}

/// Returns the only value of a query that has no parameters and is not prepared.
pub(crate) async fn value<'c, T>(
    executor: impl Executor<'c, Database = Postgres>,
    query: &str,
) -> Result<T, sqlx::Error>
where
    T: for<'r> Decode<'r, Postgres> + Type<Postgres>,
{
    executor.fetch_one(sqlx::raw_sql(AssertSqlSafe(query.to_owned()))).await?.try_get(0)
}
