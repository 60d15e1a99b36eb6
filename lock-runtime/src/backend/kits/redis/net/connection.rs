//! One connection to the server.
//!
//! The driver neither notices a silent peer nor reports that its runtime is gone. Therefore, each call has a timeout of
//! its own, and a connection that broke or stays silent is given up.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, PushInfo, PushKind, RedisError,
    aio::{ConnectionLike, MultiplexedConnection},
};
use tokio::{
    sync::oneshot,
    task::{JoinSet, yield_now},
};

use super::{
    super::error::{self, Failure, Redirection, Refusal},
    fitness,
    place::{Open, Place},
    script::Script,
    server::{self, Server},
    topology::NamedBy,
};
use crate::{
    LockError,
    backend::common::{
        client_name, cold::cold, outage::Outage, server_clock::ServerClock, single_flight::PAUSE,
    },
    time::clock::Instant,
};

/// Age from which a call that is dropped without an answer counts as unanswered, like a call that has timed out.
const SILENCE: Duration = Duration::from_millis(100);
/// Time without a call after which a connection is checked before it is used.
const CHECK_IF_UNUSED_FOR: Duration = Duration::from_millis(100);
/// Minimum age at which a connection is given up because its server takes no calls for now: the server loads its data,
/// or is a replica that has lost its primary. At this age, the host's name may lead to another server, and a new
/// connection each second does no harm.
const NOT_READY: Duration = Duration::from_secs(1);
/// Upper bound on the commands that wait to be written; further callers wait for room.
const WRITE_QUEUE: usize = 4096;

/// The receiver of the messages that a server sends unasked.
pub(crate) trait Pushes: fmt::Debug + Send + Sync {
    /// Takes a message. The driver calls this method in the order of arrival. The method must not block.
    fn take(&self, push: &PushInfo);

    /// Reports that no more messages will come over a connection.
    fn hang_up(&self, connection: u64);
}

/// One connection to the server.
pub(crate) struct Connection {
    driver: MultiplexedConnection,
    /// The task that reads and writes for the driver, and is aborted with the connection; none if the driver has its
    /// own task.
    _task: JoinSet<()>,
    /// Unique among the connections of the store.
    id: u64,
    made: Instant,
    /// When the last call was made.
    last_used: AtomicU64,
    /// When the first call since the last answer was made; 0 if no call was made since.
    waits_since: AtomicU64,
    /// If set, new calls use another connection; a call that must follow an unanswered call may still need this
    /// connection.
    given_up: AtomicBool,
    /// Whether the driver has reported its disconnection, or its runtime was shut down.
    gone: Arc<AtomicBool>,
    pushes: Arc<dyn Pushes>,
    place: Arc<Place>,
    /// Whether the server belongs to a cluster, which may send a call elsewhere.
    is_of_cluster: bool,
    /// Whether each call is made behind `ASKING`.
    is_asking: bool,
    response_timeout: Duration,
    clock: ServerClock,
    /// Number of unanswered calls since the last answer.
    silent: AtomicU32,
    silence_limit: u32,
    outage: Arc<Outage>,
    /// Dropped with the connection, which completes the future that [`open`](Self::open) returned.
    _end: oneshot::Sender<()>,
}

impl Connection {
    /// Connects to a server that can hold locks, and returns its `INFO`.
    ///
    /// The `INFO` is empty if the user may not call `INFO`. Also returns a future that completes when the connection is
    /// no longer used.
    pub(super) async fn open(
        server: &Server,
        pushes: Arc<dyn Pushes>,
        silence_limit: u32,
    ) -> (impl Future<Output = ()> + use<>, Result<(Arc<Self>, String), LockError>) {
        let (end, ended) = oneshot::channel();
        let ended = async move { _ = ended.await };
        let place = match server.place().await {
            Ok(place) => place,
            Err(error) => return (ended, Err(error)),
        };
        let began = Instant::now();
        let id = server::next_connection();
        let gone = Arc::new(AtomicBool::new(false));
        let (taken_by, is_gone, from) = (Arc::clone(&pushes), Arc::clone(&gone), Arc::clone(&place));
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(server.config().connect_timeout))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(WRITE_QUEUE)
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    is_gone.store(true, Ordering::Release);
                    from.doubt(Instant::now());
                    taken_by.hang_up(id);
                } else if !from.is_left() {
                    taken_by.take(&push);
                }
                Ok::<(), redis::aio::SendError>(())
            });
        let limit = server.config().connect_timeout;
        let address = place.config().address();
        let opening = async {
            let (driver, task) = place.dial().connect(place.config(), &settings).await?;
            // The calls share a round trip, because a renewal may be waiting for the connection.
            let (fit, info, ()) = tokio::join!(
                check_server(driver.clone(), &address, server.named_by()),
                info(driver.clone(), &address),
                set_name(driver.clone()),
            );
            fit?;
            Ok((driver, task, info?))
        };
        // The driver's own limit does not cover the handshake.
        let opening = tokio::time::timeout(limit, opening);
        let opened = tokio::select! {
            biased;
            () = place.is_left_at_last() => Err(place.replaced()),
            opened = opening => opened.unwrap_or_else(|_| {
                Err(LockError::backend(format!(
                    "Redis at {address} did not answer within {limit:?}; check address, port and firewall"
                )))
            }),
        };
        let made = opened.and_then(|(driver, task, info)| {
            tracing::debug!(address, "connected to Redis");
            let connection = Arc::new(Self {
                driver,
                _task: task,
                id,
                made: Instant::now(),
                last_used: AtomicU64::new(Instant::now().as_nanos()),
                waits_since: AtomicU64::new(0),
                given_up: AtomicBool::new(false),
                gone,
                pushes,
                place: Arc::clone(&place),
                is_of_cluster: server.named_by() == NamedBy::Cluster,
                is_asking: server.is_asking(),
                response_timeout: server.config().response_timeout,
                clock: ServerClock::default(),
                silent: AtomicU32::new(0),
                silence_limit,
                outage: Arc::clone(server.outage()),
                _end: end,
            });
            let open: Weak<Self> = Arc::downgrade(&connection);
            place.admit(open)?;
            Ok((connection, info))
        });
        if made.is_err() {
            place.doubt(began);
        }
        (ended, made)
    }

    /// Returns the address of the server, without credentials.
    pub(crate) fn address(&self) -> String {
        self.place.config().address()
    }

    /// Returns whether new calls may use the connection.
    pub(crate) fn is_usable(&self) -> bool {
        !self.given_up.load(Ordering::Acquire) && !self.is_gone()
    }

    /// Returns whether the connection was unused for long enough that its end may have gone unnoticed.
    pub(crate) fn is_idle(&self) -> bool {
        (Instant::from_nanos(self.last_used.load(Ordering::Relaxed)) + CHECK_IF_UNUSED_FOR).has_passed()
    }

    /// Returns whether a call was made at least `length` ago, and the server has answered no call since.
    pub(crate) fn is_silent_for(&self, length: Duration) -> bool {
        let since = self.waits_since.load(Ordering::Relaxed);
        since != 0 && (Instant::from_nanos(since) + length).has_passed()
    }

    /// Returns whether no request sent over the connection will be answered any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Returns whether another server has taken the place of this one, whose answers do not count any more.
    pub(crate) fn is_to_a_replaced_server(&self) -> bool {
        self.place.is_left()
    }

    /// Returns a number that is unique among the connections of the store.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Marks the connection as gone, because its runtime was shut down.
    pub(super) fn mark_gone(&self) {
        self.gone.store(true, Ordering::Release);
        self.pushes.hang_up(self.id);
    }

    /// Makes new calls use another connection.
    pub(crate) fn give_up(&self, why: &str) {
        if !self.given_up.swap(true, Ordering::AcqRel) {
            self.place.doubt(Instant::now());
            // The log comes last, because its subscriber may panic.
            self.pushes.hang_up(self.id);
            tracing::debug!(why, "connection to Redis given up");
        }
    }

    fn silence(&self) {
        if self.silent.fetch_add(1, Ordering::Relaxed) + 1 >= self.silence_limit {
            self.give_up("it went silent");
            let error = LockError::backend("its connection went silent");
            self.outage.begins(self.made, &error);
        }
    }

    /// Returns the time limit of a call, for the wait for its answer and for the execution of its request.
    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// Returns the estimate of the server's clock, as derived from the answers over this connection.
    pub(crate) fn clock(&self) -> &ServerClock {
        &self.clock
    }

    /// Runs a script. If the server does not know the script, repeats the call with the text of the script.
    ///
    /// # Cancel safety
    /// If the future is dropped, the call may still be applied.
    pub(crate) async fn run<T: FromRedisValue>(&self, script: &Script, call: &Cmd) -> Result<T, Failure> {
        match self.call(call).await {
            // The text is sent with the call, because the server's scripts may be flushed again between a load and a
            // call.
            Err(Failure::Refused(error)) if is_no_script(&error) => {
                let call = script.with_text(call);
                cold(self.call(&call)).await
            }
            answer => answer,
        }
    }

    /// Runs a script if the server knows the script; otherwise only loads the script, and returns `None`.
    ///
    /// # Cancel safety
    /// If the future is dropped, the call may still be applied.
    pub(crate) async fn run_once<T: FromRedisValue>(
        &self,
        script: &Script,
        call: &Cmd,
    ) -> Result<Option<T>, Failure> {
        match self.call(call).await {
            Err(Failure::Refused(error)) if is_no_script(&error) => {
                self.call::<redis::Value>(&script.load()).await?;
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

    /// Makes one call, within the timeout.
    ///
    /// # Cancel safety
    /// If the future is dropped, the call may still be applied.
    pub(crate) async fn call<T: FromRedisValue>(&self, call: &Cmd) -> Result<T, Failure> {
        let mut driver = self.driver.clone();
        let mut unanswered = Unanswered { connection: self, sent: Instant::now() };
        let now = unanswered.sent.as_nanos();
        self.last_used.store(now, Ordering::Relaxed);
        let _ = self.waits_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        let mut answer = pin!(async {
            if self.is_asking {
                cold(asked(call, &mut driver)).await
            } else {
                call.query_async(&mut driver).await
            }
        });
        let in_time = tokio::time::timeout(self.response_timeout, answer.as_mut()).await;
        let answer = if let Ok(answer) = in_time {
            answer
        } else {
            // The timeout may have passed while the runtime did not run, and the answer may have come meanwhile.
            catch_up().await;
            match poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await {
                Poll::Ready(answer) => answer,
                Poll::Pending => return Err(Failure::timed_out(self.response_timeout)),
            }
        };
        if answer.as_ref().err().is_none_or(|error| Refusal::of(error) != Refusal::Broken) {
            self.outage.answered(unanswered.sent);
        }
        unanswered.disarm();
        self.silent.store(0, Ordering::Relaxed);
        self.waits_since.store(0, Ordering::Relaxed);
        answer.map_err(|error| self.failure(error))
    }

    /// Returns the failure for an error that a script answered about one of many locks; see `each.lua`.
    pub(crate) fn failure_of(&self, text: &str) -> Failure {
        let error = redis::parse_redis_value(format!("{}\r\n", text.replace(['\r', '\n'], " ")).as_bytes())
            .and_then(redis::Value::extract_error)
            .err();
        error.map_or_else(
            || Failure::Refused(error::unexpected("a question about a lock")),
            |error| self.failure(error),
        )
    }

    /// Returns the failure for an error of a call; gives the connection up if the call may succeed over another
    /// connection.
    fn failure(&self, error: RedisError) -> Failure {
        if self.is_of_cluster
            && let Some(redirection) = self.redirection(&error)
        {
            let error = redirection.explain(error);
            return Failure::Redirected(redirection, error);
        }
        let refusal = Refusal::of(&error);
        let (why, least_age) = match refusal {
            Refusal::Broken => ("it broke", Duration::ZERO),
            // A server that becomes a replica closes no connection, although the host's name may lead to another server
            // by now.
            Refusal::ReadOnly => ("its server is a replica", PAUSE),
            Refusal::NotReady => ("its server is not ready", NOT_READY),
            Refusal::OfThisCall => return Failure::Refused(error::explain(error)),
        };
        if (self.made + least_age).has_passed() {
            self.give_up(why);
        }
        let error = error::explain(error);
        match refusal {
            Refusal::Broken => Failure::Disconnected(error),
            _ if self.is_usable() => Failure::Refused(error),
            _ => Failure::GivenUp(error),
        }
    }
}

impl Connection {
    /// Returns the redirection that an error contains, if any.
    fn redirection(&self, error: &RedisError) -> Option<Redirection> {
        let host = self.place.config().host_and_port().map_or("", |(host, _)| host);
        Redirection::of(error, host)
    }
}

impl Open for Connection {
    fn give_up(&self, why: &str) {
        Self::give_up(self, why);
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("usable", &self.is_usable()).finish_non_exhaustive()
    }
}

/// A pending call. If the call is dropped before [`disarm`](Self::disarm), by its caller or at our timeout, it counts
/// as unanswered.
struct Unanswered<'a> {
    connection: &'a Connection,
    sent: Instant,
}

impl Unanswered<'_> {
    fn disarm(&mut self) {
        self.sent = Instant::FAR_FUTURE;
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if Instant::now().saturating_duration_since(self.sent) >= SILENCE {
            self.connection.silence();
        }
    }
}

/// Waits until a runtime that did not run for a while has checked its sockets, and the driver's task has read them.
pub(crate) async fn catch_up() {
    // The yields are in a task of their own. The caller's task may be polled for other reasons, and each such poll
    // would end a yield.
    let passes = tokio::spawn(async {
        yield_now().await;
        yield_now().await;
    });
    // The task fails when the runtime is shut down, and then there is nothing to catch up with.
    let _ = passes.await;
}

/// Refuses a server that can hold no locks.
///
/// The check is repeated for each connection, because each may lead to another server. `HELLO` is a command that every
/// user may call.
async fn check_server(
    mut driver: MultiplexedConnection,
    address: &str,
    named_by: NamedBy,
) -> Result<(), LockError> {
    let hello = redis::cmd("HELLO").arg(3).query_async(&mut driver).await;
    fitness::check_server(&hello.map_err(|error| error::cannot_connect(address, error))?, address, named_by)
}

/// Gives the connection a name, which `CLIENT LIST` shows. A connection without a name is used, too.
///
/// Unlike `CLIENT SETNAME`, whose refusals the server would record in its `ACL LOG`, `HELLO` needs no permission. The name
/// is not part of the call that checks the server, so that the check passes where a proxy refuses the name.
async fn set_name(mut driver: MultiplexedConnection) {
    let mut call = redis::cmd("HELLO");
    call.arg(3).arg("SETNAME").arg(client_name::of_this_process());
    if let Err(error) = call.exec_async(&mut driver).await {
        tracing::debug!(%error, "the connection to Redis gets no name");
    }
}

/// Returns the server's `INFO`, which is empty if the user may not call `INFO`.
async fn info(mut driver: MultiplexedConnection, address: &str) -> Result<String, LockError> {
    match redis::cmd("INFO").query_async(&mut driver).await {
        Ok(info) => Ok(info),
        // A server that is busy with a long script will answer later.
        Err(cause) if Refusal::of(&cause) != Refusal::OfThisCall || cause.code() == Some("BUSY") => {
            Err(error::cannot_connect(address, cause))
        }
        Err(error) => {
            tracing::debug!(%error, "the server's eviction policy is not checked");
            Ok(String::new())
        }
    }
}

/// Makes one call behind `ASKING`, which is meant for the next command of the connection: both are sent as one.
async fn asked<T: FromRedisValue>(call: &Cmd, driver: &mut MultiplexedConnection) -> Result<T, RedisError> {
    let mut both = redis::pipe();
    both.cmd("ASKING").add_command(call.clone());
    let answers = driver.req_packed_commands(&both, 0, 2).await?;
    // A user may lack the right to `ASKING`, without which the server would send the call back.
    let answers = answers.into_iter().map(redis::Value::extract_error).collect::<Result<Vec<_>, _>>()?;
    T::from_redis_value(answers.into_iter().nth(1).unwrap_or(redis::Value::Nil)).map_err(RedisError::from)
}

fn is_no_script(error: &LockError) -> bool {
    error
        .cause()
        .and_then(|cause| cause.downcast_ref::<redis::RedisError>())
        .is_some_and(|error| error.code() == Some("NOSCRIPT"))
}
