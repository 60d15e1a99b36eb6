//! The connection to the server, one for each runtime that uses it.
//!
//! The driver neither notices a peer that went silent nor replaces a connection that broke. So each call has a
//! time-out of its own, a broken or repeatedly silent connection is replaced, and whoever waits for a push is told.

use std::{
    collections::{HashMap, VecDeque},
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
use tokio::{runtime, sync::mpsc};

use super::{config::Config, error::Failure, names, scripts::Script};
use crate::{LockError, LockErrorKind, OwnerToken, clock::Instant};

/// So many calls in a row without an answer, and the connection is replaced.
const SILENCE_LIMIT: u32 = 2;
/// Pushes that are kept for waiters which do not listen yet.
const UNCLAIMED: usize = 1024;
/// Commands that may wait to be written; more callers wait for room.
const WRITE_QUEUE: usize = 4096;

/// The connections of one store.
#[derive(Debug)]
pub(super) struct Links {
    config: Config,
    client: Client,
    by_runtime: Mutex<HashMap<runtime::Id, Arc<Link>>>,
    /// What the owners of this process begin with.
    process: String,
}

impl Links {
    pub(super) fn new(config: Config) -> Result<Self, LockError> {
        let client = Client::open(config.info.clone()).map_err(|error| {
            LockError::new(LockErrorKind::InvalidOptions, "the Redis settings are not understood")
                .with_source(error)
        })?;
        Ok(Self { config, client, by_runtime: Mutex::default(), process: names::process() })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
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
    inbox: Arc<Inbox>,
    /// The channel of each prefix that is subscribed to.
    channels: Mutex<HashMap<String, Arc<str>>>,
    response_timeout: Duration,
    /// Calls in a row without an answer.
    silent: AtomicU32,
}

impl Connection {
    async fn open(links: &Links) -> Result<Arc<Self>, LockError> {
        let inbox = Arc::new(Inbox::new());
        let pushes = Arc::clone(&inbox);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(links.config.connect_timeout))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(WRITE_QUEUE)
            .set_push_sender(move |push: PushInfo| {
                pushes.take(&push);
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
            inbox,
            channels: Mutex::default(),
            response_timeout: links.config.response_timeout,
            silent: AtomicU32::new(0),
        }))
    }

    /// Whether this connection is of no more use.
    pub(super) fn is_closed(&self) -> bool {
        self.inbox.closed.load(Ordering::Acquire)
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
            self.inbox.close();
        }
    }

    /// The channel on which this connection is told of grants, for locks under `prefix`; subscribed to at first use.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn inbox(&self, prefix: &str) -> Result<Arc<str>, Failure> {
        if let Some(channel) = lock(&self.channels).get(prefix) {
            return Ok(Arc::clone(channel));
        }
        let channel: Arc<str> = names::inbox(prefix, &self.inbox.id).into();
        self.call::<redis::Value>(redis::cmd("SUBSCRIBE").arg(&*channel)).await?;
        lock(&self.channels).insert(prefix.to_owned(), Arc::clone(&channel));
        Ok(channel)
    }

    /// The number under which a waiter is told.
    pub(super) fn next_number(&self) -> u64 {
        self.inbox.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Opens the letter box of a waiter, with what has come for it already.
    pub(super) fn listen(&self, number: u64) -> Letters {
        let (deliver, delivered) = mpsc::unbounded_channel();
        let mut boxes = lock(&self.inbox.boxes);
        boxes.unclaimed.retain(|(to, letter)| {
            let ours = *to == number;
            if ours {
                // The receiver is in the same function.
                let _ = deliver.send(*letter);
            }
            !ours
        });
        // Closed before it could be told so: then the sender goes at once, which tells it.
        if !self.is_closed() {
            boxes.by_number.insert(number, deliver);
        }
        Letters { number, delivered, inbox: Arc::clone(&self.inbox) }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

/// Where pushes of one connection arrive.
#[derive(Debug)]
struct Inbox {
    /// Not a secret, but unlike that of any other connection.
    id: String,
    closed: AtomicBool,
    numbers: AtomicU64,
    boxes: Mutex<Boxes>,
}

#[derive(Debug, Default)]
struct Boxes {
    by_number: HashMap<u64, mpsc::UnboundedSender<Letter>>,
    /// A push may arrive before its waiter has seen the answer that says that it waits.
    unclaimed: VecDeque<(u64, Letter)>,
}

/// A grant that was pushed to a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Letter {
    pub(super) fence: u64,
    pub(super) px: Duration,
}

impl Inbox {
    fn new() -> Self {
        let id = format!("{:016x}", OwnerToken::random().expose() >> 64);
        Self { id, closed: AtomicBool::new(false), numbers: AtomicU64::new(0), boxes: Mutex::default() }
    }

    /// Called by the driver, in the order of arrival; must not block.
    fn take(&self, push: &PushInfo) {
        match push.kind {
            PushKind::Disconnection => self.close(),
            PushKind::Message => {
                if let Some((number, letter)) = push.data.get(1).and_then(read_letter) {
                    lock(&self.boxes).put(number, letter);
                }
            }
            _ => {}
        }
    }

    /// No push comes any more: whoever waits for one sees its letter box closed.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        lock(&self.boxes).by_number.clear();
    }
}

impl Boxes {
    fn put(&mut self, number: u64, letter: Letter) {
        if let Some(waiter) = self.by_number.get(&number) {
            // A waiter that is gone gives its grant back by itself.
            let _ = waiter.send(letter);
            return;
        }
        if self.unclaimed.len() >= UNCLAIMED {
            self.unclaimed.pop_front();
        }
        self.unclaimed.push_back((number, letter));
    }
}

/// Reads `<number> <fence> <px ms>`.
fn read_letter(payload: &redis::Value) -> Option<(u64, Letter)> {
    let redis::Value::BulkString(payload) = payload else { return None };
    let mut parts = std::str::from_utf8(payload).ok()?.split(' ').map(str::parse::<u64>);
    let (number, fence, px) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    Some((number, Letter { fence, px: Duration::from_millis(px) }))
}

/// The letter box of one waiter, as long as it waits.
#[derive(Debug)]
pub(super) struct Letters {
    pub(super) number: u64,
    delivered: mpsc::UnboundedReceiver<Letter>,
    inbox: Arc<Inbox>,
}

impl Letters {
    /// The next grant; none when the connection is gone.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Letter> {
        self.delivered.recv().await
    }
}

impl Drop for Letters {
    fn drop(&mut self) {
        lock(&self.inbox.boxes).by_number.remove(&self.number);
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
