//! The connection to the server, one for each runtime that uses it.
//!
//! The driver neither notices a peer that went silent nor replaces a connection that broke. So each call has a
//! time-out of its own, a broken or repeatedly silent connection is replaced, and whoever waits for a push is told.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, FromRedisValue, PushInfo, PushKind, aio::MultiplexedConnection,
};
use tokio::runtime;

use super::{
    config::Config,
    error::Failure,
    inbox::{Inbox, Letters},
    names,
    scripts::Script,
};
use crate::{LockError, LockErrorKind, clock::Instant};

/// So many calls in a row without an answer, and the connection is replaced.
const SILENCE_LIMIT: u32 = 2;
/// Commands that may wait to be written; more callers wait for room.
const WRITE_QUEUE: usize = 4096;

/// The connections of one store.
#[derive(Debug)]
pub(super) struct Links {
    config: Config,
    client: Client,
    by_runtime: Mutex<HashMap<runtime::Id, Arc<Link>>>,
    inbox: Arc<Inbox>,
    /// What the owners of this process begin with.
    process: String,
    /// How many connections were made.
    made: AtomicU64,
}

impl Links {
    pub(super) fn new(config: Config) -> Result<Self, LockError> {
        let client = Client::open(config.info.clone()).map_err(|error| {
            LockError::new(LockErrorKind::InvalidOptions, "the Redis settings are not understood")
                .with_source(error)
        })?;
        let inbox = Arc::new(Inbox::new());
        let process = names::process(inbox.id());
        Ok(Self { config, client, by_runtime: Mutex::default(), inbox, process, made: AtomicU64::new(0) })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    pub(super) fn process(&self) -> &str {
        &self.process
    }

    /// The connection of the caller's runtime, made if there is none.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn here(&self) -> Result<Arc<Connection>, Failure> {
        self.link().connection(self).await
    }

    fn link(&self) -> Arc<Link> {
        let here = runtime::Handle::current().id();
        let mut links = lock(&self.by_runtime);
        if let Some(link) = links.get(&here) {
            return Arc::clone(link);
        }
        // Of a runtime that was shut down nothing is left but a connection that nobody drives.
        links.retain(|_, link| !link.is_dead());
        Arc::clone(links.entry(here).or_default())
    }
}

/// The present connection of one runtime.
#[derive(Debug, Default)]
struct Link {
    current: Mutex<Option<Arc<Connection>>>,
    /// One caller connects, the others wait for its result.
    connecting: tokio::sync::Mutex<Option<FailedConnect>>,
}

#[derive(Debug)]
struct FailedConnect {
    at: Instant,
    error: LockError,
}

impl Link {
    fn is_dead(&self) -> bool {
        lock(&self.current).as_ref().is_some_and(|connection| connection.is_closed())
    }

    fn usable(&self) -> Option<Arc<Connection>> {
        lock(&self.current).as_ref().filter(|connection| !connection.is_closed()).map(Arc::clone)
    }

    async fn connection(&self, links: &Links) -> Result<Arc<Connection>, Failure> {
        if let Some(connection) = self.usable() {
            return Ok(connection);
        }
        let asked = Instant::now();
        let mut failed = self.connecting.lock().await;
        if let Some(connection) = self.usable() {
            return Ok(connection);
        }
        if let Some(failed) = failed.as_ref().filter(|failed| failed.at >= asked) {
            return Err(Failure::Refused(failed.error.clone()));
        }
        match Connection::open(links).await {
            Ok(connection) => {
                *lock(&self.current) = Some(Arc::clone(&connection));
                *failed = None;
                Ok(connection)
            }
            Err(error) => {
                *failed = Some(FailedConnect { at: Instant::now(), error: error.clone() });
                Err(Failure::Refused(error))
            }
        }
    }
}

/// One connection, from its making to its end.
pub(super) struct Connection {
    driver: MultiplexedConnection,
    /// Unlike that of any other connection of the store.
    id: u64,
    closed: Arc<AtomicBool>,
    inbox: Arc<Inbox>,
    /// The channel of each prefix that is subscribed to.
    channels: Mutex<HashMap<String, Arc<str>>>,
    response_timeout: Duration,
    /// Calls in a row without an answer.
    silent: AtomicU32,
}

impl Connection {
    async fn open(links: &Links) -> Result<Arc<Self>, LockError> {
        let id = links.made.fetch_add(1, Ordering::Relaxed);
        let closed = Arc::new(AtomicBool::new(false));
        let (pushes, gone) = (Arc::clone(&links.inbox), Arc::clone(&closed));
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(links.config.connect_timeout))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(WRITE_QUEUE)
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    gone.store(true, Ordering::Release);
                    pushes.hang_up(id);
                } else {
                    pushes.take(&push);
                }
                Ok::<(), redis::aio::SendError>(())
            });
        let limit = links.config.connect_timeout;
        let address = links.config.address();
        // The driver's own limit does not cover the handshake.
        let opened =
            tokio::time::timeout(limit, links.client.get_multiplexed_async_connection_with_config(&config))
                .await;
        let driver = match opened {
            Ok(Ok(driver)) => driver,
            Ok(Err(error)) => return Err(cannot_connect(&address, error)),
            Err(_) => {
                return Err(LockError::new(
                    LockErrorKind::Backend,
                    format!(
                        "Redis at {address} did not answer within {limit:?}; check address, port and firewall"
                    ),
                ));
            }
        };
        tracing::debug!(address, "connected to Redis");
        Ok(Arc::new(Self {
            driver,
            id,
            closed,
            inbox: Arc::clone(&links.inbox),
            channels: Mutex::default(),
            response_timeout: links.config.response_timeout,
            silent: AtomicU32::new(0),
        }))
    }

    /// Whether this connection is of no more use.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Runs a script; sends its text where the server does not know it.
    ///
    /// # Cancel safety
    /// Dropped, the call may still be applied.
    pub(super) async fn run<T: FromRedisValue>(&self, script: &Script, call: &Cmd) -> Result<T, Failure> {
        match self.call(call).await {
            Err(Failure::Refused(error)) if is_no_script(&error) => {
                self.call::<redis::Value>(&script.load()).await?;
                self.call(call).await
            }
            answer => answer,
        }
    }

    /// Makes one call, within the time-out.
    ///
    /// # Cancel safety
    /// Dropped, the call may still be applied.
    pub(super) async fn call<T: FromRedisValue>(&self, call: &Cmd) -> Result<T, Failure> {
        let mut driver = self.driver.clone();
        let answer = tokio::time::timeout(self.response_timeout, call.query_async::<T>(&mut driver)).await;
        let Ok(answer) = answer else {
            if self.silent.fetch_add(1, Ordering::Relaxed) + 1 >= SILENCE_LIMIT {
                self.close("it went silent");
            }
            return Err(Failure::timed_out(self.response_timeout));
        };
        self.silent.store(0, Ordering::Relaxed);
        answer.map_err(|error| {
            let failure = Failure::of(error);
            if let Failure::Disconnected(_) = failure {
                self.close("it broke");
            }
            failure
        })
    }

    fn close(&self, why: &str) {
        if !self.is_closed() {
            tracing::debug!(why, "connection to Redis given up");
            self.closed.store(true, Ordering::Release);
            self.inbox.hang_up(self.id);
        }
    }

    /// The channel on which this process is told about locks under `prefix`; subscribed to at first use.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn inbox(&self, prefix: &str) -> Result<Arc<str>, Failure> {
        if let Some(channel) = lock(&self.channels).get(prefix) {
            return Ok(Arc::clone(channel));
        }
        let channel: Arc<str> = names::inbox(prefix, self.inbox.id()).into();
        self.call::<redis::Value>(redis::cmd("SUBSCRIBE").arg(&*channel)).await?;
        lock(&self.channels).insert(prefix.to_owned(), Arc::clone(&channel));
        Ok(channel)
    }

    /// The number under which a waiter is told.
    pub(super) fn next_number(&self) -> u64 {
        self.inbox.next_number()
    }

    /// Opens the letter box of a waiter, which is told when this connection is gone.
    pub(super) fn listen(&self, number: u64) -> Letters {
        let letters = Inbox::listen(&self.inbox, number, self.id);
        if self.is_closed() {
            // Closed before it could be told so.
            self.inbox.hang_up(self.id);
        }
        letters
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

fn is_no_script(error: &LockError) -> bool {
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<redis::RedisError>())
        .is_some_and(|error| error.code() == Some("NOSCRIPT"))
}

fn cannot_connect(address: &str, error: redis::RedisError) -> LockError {
    let refused = error.is_connection_refusal();
    let io = error.is_io_error();
    let detail = error.to_string();
    match Failure::of(error) {
        failure if !io => {
            let error = failure.into_error();
            LockError::new(LockErrorKind::Backend, format!("Redis at {address}: {}", error.message()))
                .with_source(error)
        }
        failure => LockError::new(
            LockErrorKind::Backend,
            if refused {
                format!("cannot connect to Redis at {address}: nothing listens there; is the server running?")
            } else {
                format!("cannot connect to Redis at {address}: {detail}")
            },
        )
        .with_source(failure.into_error()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
