//! The connections of one store. Each runtime has its own connection, which is replaced once it is unusable.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{runtime, sync::oneshot};

use super::{
    super::error::{self, Failure},
    connection::{self, Connection, Pushes},
    fitness,
    server::Server,
};
use crate::{
    LockError,
    backend::{
        FindingCode,
        common::{
            cold::cold,
            hedged::hedged,
            renewable::cannot_renew,
            single_flight::{self, SingleFlight},
        },
    },
    background,
    hash::HashMap,
    sync::lock,
    time::clock::Instant,
};

/// Number of unanswered calls in a row after which the connection is replaced.
const SILENCE_LIMIT: u32 = 2;
/// The [`SILENCE_LIMIT`] on the library's own runtime: a renewal has no time for a second unanswered call.
const SILENCE_LIMIT_OF_RENEWALS: u32 = 1;

/// The protocol of a store over its connections.
pub(crate) trait Service: fmt::Debug + Send + Sync + 'static {
    /// A connection, with the state of the service for this connection.
    type Line: AsRef<Connection> + fmt::Debug + Send + Sync + 'static;

    /// Returns the receiver of the messages that the server sends unasked.
    fn pushes(&self) -> Arc<dyn Pushes>;

    /// Begins the service on a new connection to a server with this `INFO`, which is empty if the user may not call
    /// `INFO`. An error means that the connection cannot be used.
    fn begin(
        &self,
        connection: Arc<Connection>,
        info: &str,
    ) -> impl Future<Output = Result<Arc<Self::Line>, LockError>> + Send;
}

/// The connections of one store.
#[derive(Debug)]
pub(crate) struct Connections<S: Service> {
    server: Arc<Server>,
    service: S,
    by_runtime: Mutex<HashMap<runtime::Id, Arc<Slot<S>>>>,
    /// The connection of the library's own thread.
    renewals: Mutex<Weak<S::Line>>,
    seen: Mutex<Seen>,
}

/// The server that answered last.
#[derive(Debug, Default, PartialEq)]
enum Seen {
    #[default]
    None,
    /// A server, with its run id if the server reports one.
    Server(Option<Box<str>>),
}

impl<S: Service> Connections<S> {
    pub(crate) fn new(server: Arc<Server>, service: S) -> Self {
        Self {
            server,
            service,
            by_runtime: Mutex::default(),
            renewals: Mutex::new(Weak::new()),
            seen: Mutex::default(),
        }
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    pub(crate) fn service(&self) -> &S {
        &self.service
    }

    /// Returns the run id of the server that answered last, if known.
    pub(crate) fn run_id(&self) -> Option<Box<str>> {
        match &*lock(&self.seen) {
            Seen::None => None,
            Seen::Server(run_id) => run_id.clone(),
        }
    }

    /// Returns the connection of the caller's runtime, if there is one. The server may have closed an
    /// [idle](Connection::is_idle) connection.
    pub(crate) fn open_here(&self) -> Option<Arc<S::Line>> {
        self.slot().flight.open(is_usable::<S>)
    }

    /// Returns the connection of the caller's runtime; makes one if there is none.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn here(self: &Arc<Self>) -> Result<Arc<S::Line>, Failure> {
        let slot = self.slot();
        let open = slot.flight.open(is_usable::<S>);
        match open {
            Some(line) if !(*line).as_ref().is_idle() => Ok(line),
            open => cold(self.checked(slot, open)).await,
        }
    }

    /// Returns whether there is a connection for renewals.
    pub(crate) fn can_renew(&self) -> bool {
        lock(&self.renewals).upgrade().as_ref().is_some_and(is_usable::<S>)
    }

    /// Makes a connection for renewals if there is none. Without such a connection, a granted lock would be lost at the
    /// end of its `ttl`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn connect_for_renewals(self: &Arc<Self>) -> Result<(), LockError> {
        let (tell, told) = oneshot::channel();
        let this = Arc::clone(self);
        background::handle().spawn(async move {
            let _ = tell.send(this.here().await.map(drop));
        });
        let made = told.await.unwrap_or_else(|_| Err(Failure::runtime_gone()));
        made.map_err(|failure| {
            let error = failure.into_error();
            cannot_renew(&error, error::is_full(&error))
        })
    }

    /// Returns the `open` connection, if any, unless the server has closed it; otherwise makes a new connection.
    async fn checked(
        self: &Arc<Self>,
        slot: Arc<Slot<S>>,
        open: Option<Arc<S::Line>>,
    ) -> Result<Arc<S::Line>, Failure> {
        if let Some(line) = open {
            let connection: &Connection = (*line).as_ref();
            // A runtime that did not run does not know yet whether the server has closed the connection.
            connection::catch_up().await;
            if connection.is_usable() {
                return Ok(line);
            }
        }
        let begin = |attempt| {
            tokio::spawn(Slot::connect(Arc::clone(&slot), Arc::clone(self), attempt));
            Ok(())
        };
        let given_up = "the runtime was shut down while it connected to Redis";
        slot.flight.get(is_usable::<S>, begin, given_up).await.map_err(Failure::Refused)
    }

    /// Opens a connection to a server that may be used for locks, and begins its service.
    ///
    /// Also returns a future that completes when the connection is no longer used.
    async fn open(&self) -> (impl Future<Output = ()> + use<S>, Result<Arc<S::Line>, LockError>) {
        let open = |silence_limit| Connection::open(&self.server, self.service.pushes(), silence_limit);
        let ours = background::handle().is_here();
        let (end, opened) =
            if ours { hedged(|| open(SILENCE_LIMIT_OF_RENEWALS)).await } else { open(SILENCE_LIMIT).await };
        let made = match opened {
            Ok((connection, info)) => match self.judge(&info, &connection.address(), ours) {
                Ok(()) => self.service.begin(connection, &info).await,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        (end, made)
    }

    /// Judges the server of a new connection by its `INFO`. Each new connection may lead to another server.
    ///
    /// The setting `strict` does not apply to the connection for renewals and clean-up: no lock is acquired over this
    /// connection, and held locks are to be kept.
    fn judge(&self, info: &str, address: &str, for_renewals: bool) -> Result<(), LockError> {
        let is_strict = self.server.config().strict && !for_renewals;
        if info.is_empty() && is_strict {
            let message = format!(
                "Redis at {address} does not let this user call INFO, by which the setting `strict` checks the server; \
                 extend the user's ACL (`+info`), or leave `strict` out"
            );
            return Err(LockError::backend(message).into_permanent().with_fault(FindingCode::Rights));
        }
        // With `min_replicas`, a primary without replicas grants and renews no lock.
        let alone = self.server.named_by().may_fail_over() && self.server.config().min_replicas == 0;
        let faults = fitness::faults(info, alone);
        let danger = fitness::danger(&faults, address);
        if let Some(danger) = &danger
            && is_strict
        {
            let message = format!("{danger} (refused because of `strict`)");
            let error = LockError::backend(message);
            return Err(error.with_fault(faults.first().map(|fault| fault.code)));
        }
        if info.is_empty() {
            return Ok(());
        }
        let server = || Seen::Server(fitness::run_id(info).map(Box::from));
        let last = std::mem::replace(&mut *lock(&self.seen), server());
        // Warns once for each server, however many connections lead there.
        if let Some(danger) = danger
            && last != server()
        {
            tracing::warn!("{danger}");
        }
        Ok(())
    }

    fn slot(&self) -> Arc<Slot<S>> {
        let here = runtime::Handle::current().id();
        let mut slots = lock(&self.by_runtime);
        if let Some(slot) = slots.get(&here) {
            return Arc::clone(slot);
        }
        slots.retain(|_, slot| slot.is_of_use());
        Arc::clone(slots.entry(here).or_default())
    }
}

fn is_usable<S: Service>(line: &Arc<S::Line>) -> bool {
    let connection: &Connection = (**line).as_ref();
    connection.is_usable()
}

/// The current connection of one runtime.
#[derive(Debug)]
struct Slot<S: Service> {
    flight: SingleFlight<Arc<S::Line>>,
    runtime_is_gone: AtomicBool,
}

impl<S: Service> Default for Slot<S> {
    fn default() -> Self {
        Self { flight: SingleFlight::default(), runtime_is_gone: AtomicBool::new(false) }
    }
}

impl<S: Service> Slot<S> {
    /// Returns whether to keep the slot. After a failed attempt to connect, no [`Sentinel`] would notice the shutdown
    /// of the runtime, so the slot is not kept; a runtime that still runs gets a new slot.
    fn is_of_use(&self) -> bool {
        !self.flight.has_failed() && !self.runtime_is_gone.load(Ordering::Acquire)
    }

    async fn connect(
        this: Arc<Self>,
        connections: Arc<Connections<S>>,
        attempt: single_flight::Attempt<Arc<S::Line>>,
    ) {
        // If the runtime is shut down, this task is dropped, and with the task the unfinished sentinel.
        let mut sentinel = Sentinel { slot: Arc::downgrade(&this), line: Weak::new(), finished: false };
        let began = Instant::now();
        let (end, made) = connections.open().await;
        match &made {
            Ok(line) => {
                connections.server.outage().ends();
                sentinel.line = Arc::downgrade(line);
                if background::handle().is_here() {
                    *lock(&connections.renewals) = Arc::downgrade(line);
                }
            }
            Err(error) => connections.server.outage().begins(began, error),
        }
        drop(connections);
        this.flight.finish(attempt, made);
        drop(this);
        end.await;
        sentinel.finished = true;
    }
}

/// Notices the shutdown of a runtime. The driver does not report that the runtime no longer drives the connection.
struct Sentinel<S: Service> {
    slot: Weak<Slot<S>>,
    line: Weak<S::Line>,
    finished: bool,
}

impl<S: Service> Drop for Sentinel<S> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        if let Some(slot) = self.slot.upgrade() {
            slot.runtime_is_gone.store(true, Ordering::Release);
        }
        if let Some(line) = self.line.upgrade() {
            let connection: &Connection = (*line).as_ref();
            connection.mark_gone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::super::config::Config, *};

    /// Sends nothing over its connections.
    #[derive(Debug)]
    struct Silent;

    impl Pushes for Silent {
        fn take(&self, _: &redis::PushInfo) {}

        fn hang_up(&self, _: u64) {}
    }

    impl AsRef<Connection> for Connection {
        fn as_ref(&self) -> &Connection {
            self
        }
    }

    impl Service for Silent {
        type Line = Connection;

        fn pushes(&self) -> Arc<dyn Pushes> {
            Arc::new(Self)
        }

        async fn begin(&self, connection: Arc<Connection>, _: &str) -> Result<Arc<Connection>, LockError> {
            Ok(connection)
        }
    }

    #[test]
    fn runtimes_that_ended_while_the_server_was_away_are_forgotten() {
        let config = Config::from_url("redis+unix:///nowhere").expect("valid");
        let connections = Arc::new(Connections::new(Server::new(config, "", "").expect("valid"), Silent));
        for _ in 0..100 {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(connections.here()).expect_err("no server is there");
        }
        std::thread::sleep(single_flight::PAUSE);
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(connections.here()).expect_err("no server is there");
        assert_eq!(lock(&connections.by_runtime).len(), 1);
    }
}
