//! Notifications of releases, over one connection of the process.
//!
//! They are only hints: any user of the database can send one, and one may be lost. So each wait also ends by itself.
//!
//! Behind a pooler that gives each transaction another session of the server, notifications do not arrive, statements
//! cannot be prepared, and a `LISTEN` would go on in a session of other clients. So the listener first finds out whether
//! its connection has a session that began with it, and keeps it while another connection is in a transaction. Then it
//! sends itself a notification. Until that has arrived, waiters poll, and statements are sent as text.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Decode, Executor, PgConnection, Row, Type,
    pool::PoolOptions,
    postgres::{PgListener, Postgres},
};
use tokio::{sync::Notify, time::timeout};

use super::{config::Config, connections::Connections};
use crate::{
    LockKey, OwnerToken,
    backend::common::hints::{Hints, Releases},
    background,
    sync::check_or_wait,
    time::{
        backoff::between,
        clock::{self, Instant},
    },
};

/// Number of acquisitions after which a process locks often.
const OFTEN: u64 = 64;
/// How often the session is compared with that of another connection.
const SWAPS: u32 = 3;
/// How long to wait for our own notification before the connection counts as one behind a pooler.
const PROOF: Duration = Duration::from_millis(500);
/// Pause before that is tried again.
const PAUSE_BEHIND_POOLER: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(60)];
/// Pause after a connection was lost or not made.
const PAUSE: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(500)];
/// How long without a message until the connection is checked.
const SILENCE: Duration = Duration::from_secs(2);
/// How long the connection is kept without waiters.
const UNUSED: Duration = Duration::from_secs(60);

/// The notifications of one store.
#[derive(Debug)]
pub(super) struct Notices {
    connections: Arc<Connections>,
    channel: String,
    hints: Arc<Hints>,
    /// Whether notifications arrive.
    arrive: AtomicBool,
    /// The number of acquisitions.
    asked: AtomicU64,
    /// Whether the task that listens runs.
    runs: AtomicBool,
    /// A task begins to wait, or the store is dropped.
    wake: Arc<Notify>,
}

impl Notices {
    pub(super) fn new(connections: Arc<Connections>, channel: String) -> Arc<Self> {
        Arc::new(Self {
            connections,
            channel,
            hints: Arc::default(),
            arrive: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            runs: AtomicBool::new(false),
            wake: Arc::default(),
        })
    }

    pub(super) fn channel(&self) -> &str {
        &self.channel
    }

    /// Counts an acquisition. A process that locks often begins to listen before it has to wait: then its statements can be
    /// prepared. One that rarely locks is spared the connection.
    pub(super) fn asked(self: &Arc<Self>) {
        if self.asked.fetch_add(1, Ordering::Relaxed) == OFTEN {
            self.start();
        }
    }

    /// Begins to listen, unless that has begun.
    fn start(self: &Arc<Self>) {
        if !self.runs.swap(true, Ordering::SeqCst) {
            background::handle().spawn(listen(Arc::downgrade(self), Arc::clone(&self.wake)));
        }
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

/// Returns the payload of a notification about a lock. Any user of the database may listen, and therefore sees a hash
/// instead of the name.
pub(super) fn payload(key: &LockKey) -> String {
    sha1_smol::Sha1::from(key.stored()).digest().to_string()
}

/// Waits for the releases of one lock; ends when dropped.
#[derive(Debug)]
pub(super) struct Watch {
    notices: Arc<Notices>,
    payload: Arc<str>,
    releases: Arc<Releases>,
}

impl Watch {
    pub(super) fn begin(notices: &Arc<Notices>, key: &LockKey) -> Self {
        let payload = payload(key).into();
        let releases = notices.hints.watch(&payload);
        notices.start();
        notices.wake.notify_one();
        Self { notices: Arc::clone(notices), payload, releases }
    }

    /// Returns whether notifications arrive at present.
    pub(super) fn is_notified(&self) -> bool {
        self.notices.arrive.load(Ordering::Acquire)
    }

    /// Returns the number of notifications so far.
    pub(super) fn count(&self) -> u64 {
        self.releases.count()
    }

    /// Completes when the number of notifications is at least `count`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn reached(&self, count: u64) {
        self.releases.reached(count).await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.notices.hints.unwatch(&self.payload);
    }
}

/// Why a connection no longer listens.
enum End {
    /// It was lost, or not made.
    Lost,
    /// It is behind a pooler.
    Pooled,
    /// No task has waited for long.
    Unused,
}

/// Listens until the store is dropped.
async fn listen(store: Weak<Notices>, wake: Arc<Notify>) {
    let mut told = false;
    loop {
        let Some(notices) = store.upgrade() else { return };
        let end = listen_once(&notices, &store, &wake).await;
        // What was released meanwhile is not known.
        notices.arrive.store(false, Ordering::Release);
        notices.hints.tell_all();
        drop(notices);
        let pause = match end {
            None => return,
            Some(End::Lost) => PAUSE,
            Some(End::Pooled) => {
                if !told {
                    tracing::info!(
                        "notifications do not arrive, as behind a pooler of transactions: waiters ask for a lock every \
                         50 to 100 ms"
                    );
                    told = true;
                }
                PAUSE_BEHIND_POOLER
            }
            Some(End::Unused) => {
                let used = || store.upgrade().is_none_or(|notices| notices.hints.is_watched()).then_some(());
                while check_or_wait(&wake, used).await.is_none() {}
                [Duration::ZERO; 2]
            }
        };
        let _ = timeout(between(pause), async {
            while store.strong_count() > 0 {
                wake.notified().await;
            }
        })
        .await;
    }
}

/// Listens over one connection; returns why it ended, or `None` if the store is to be dropped.
async fn listen_once(notices: &Arc<Notices>, store: &Weak<Notices>, wake: &Notify) -> Option<End> {
    let config = notices.connections.config();
    let limit = (config.connect_timeout + config.response_timeout) * 2;
    let mut listener = match timeout(limit, connect(&notices.channel, config)).await {
        Ok(Ok(Some(listener))) => listener,
        Ok(Ok(None)) => {
            notices.connections.keep_sessions(false);
            return Some(End::Pooled);
        }
        Ok(Err(_)) | Err(_) => return Some(End::Lost),
    };
    notices.connections.keep_sessions(true);
    notices.arrive.store(true, Ordering::Release);
    notices.hints.tell_all();
    let (silence, response_timeout) = (SILENCE.min(config.response_timeout), config.response_timeout);
    let mut used = Instant::now();
    loop {
        if notices.hints.is_watched() {
            used = Instant::now();
        } else if (used + UNUSED).has_passed() {
            return Some(End::Unused);
        }
        // Only this task has the store.
        if store.strong_count() <= 1 {
            return None;
        }
        tokio::select! {
            biased;
            message = listener.try_recv() => match message {
                Ok(Some(message)) if message.channel() == notices.channel => {
                    notices.hints.tell(message.payload());
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return Some(End::Lost),
            },
            () = wake.notified() => {}
            () = clock::sleep_until(Instant::now() + silence) => {
                let checked = timeout(response_timeout, listener.execute("SELECT 1")).await;
                if !matches!(checked, Ok(Ok(_))) {
                    return Some(End::Lost);
                }
            }
        }
    }
}

/// Connects, and begins to listen if the connection has a session of its own; otherwise returns `None`.
async fn connect(channel: &str, config: &Config) -> Result<Option<PgListener>, sqlx::Error> {
    let mut other: PgConnection = config.options.connect().await?;
    let now: String = value(&mut other, "SELECT clock_timestamp()::text").await?;
    // The pool has this connection alone, and makes no other: a new one has to be proved.
    let pool = PoolOptions::<Postgres>::new().max_connections(1).connect_lazy_with(config.options.clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.ignore_pool_close_event(true);
    listener.eager_reconnect(false);
    // A pooler mostly lends a session that has been there before.
    let is_new = format!(
        "SELECT backend_start >= '{now}'::timestamptz FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    );
    if !value::<bool>(&mut listener, &is_new).await? {
        return Ok(None);
    }
    for _ in 0..SWAPS {
        const SESSION: &str = "SELECT pg_backend_pid()";
        // Or it has made a new one, which it then lends to the next transaction.
        let before: i32 = value(&mut listener, SESSION).await?;
        let mut transaction = other.begin().await?;
        let others: i32 = value(&mut *transaction, SESSION).await?;
        let after: i32 = value(&mut listener, SESSION).await?;
        transaction.rollback().await?;
        if before != after || before == others {
            return Ok(None);
        }
    }
    listener.listen(channel).await?;
    let proof = format!("proof {:016x}", OwnerToken::random().expose() >> 64);
    other.execute(sqlx::raw_sql(AssertSqlSafe(format!("NOTIFY \"{channel}\", '{proof}'")))).await?;
    let arrives = timeout(PROOF, async {
        loop {
            match listener.try_recv().await? {
                Some(message) if message.payload() == proof => return Ok(true),
                Some(_) => {}
                None => return Err(sqlx::Error::PoolClosed),
            }
        }
    });
    let arrives = arrives.await.unwrap_or(Ok(false))?;
    other.close().await?;
    Ok(arrives.then_some(listener))
}

/// Returns the only value of a query without parameters. It is not prepared.
async fn value<'c, T>(executor: impl Executor<'c, Database = Postgres>, query: &str) -> Result<T, sqlx::Error>
where
    T: for<'r> Decode<'r, Postgres> + Type<Postgres>,
{
    executor.fetch_one(sqlx::raw_sql(AssertSqlSafe(query.to_owned()))).await?.try_get(0)
}
