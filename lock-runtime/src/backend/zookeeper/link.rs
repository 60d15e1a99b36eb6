//! The present session of a store: one for the whole process, made anew when it has ended.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::{config::Config, connect, session::Session};
use crate::{
    LockError, LockErrorKind, backend::outage::Outage, background, process::Process, sync::lock,
    time::clock::Instant,
};

/// So long after a failure to connect nobody tries again: many callers do not make many connections.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Link {
    config: Config,
    state: Mutex<State>,
    /// The time-out that the servers last granted.
    timeout: AtomicU64,
    outage: Arc<Outage>,
}

type Made = Option<Result<Arc<Session>, LockError>>;

#[derive(Debug)]
enum State {
    Idle,
    /// All who need the session wait for the same one.
    Connecting(watch::Receiver<Made>),
    Open(Arc<Session>),
    /// Until this moment nobody tries again.
    Failed(Instant, LockError),
}

impl Link {
    pub(super) fn new(config: Config) -> Arc<Self> {
        let timeout = AtomicU64::new(nanos(config.session_timeout));
        let outage = Arc::new(Outage::of(format!("ZooKeeper at {}", config.servers)));
        Arc::new(Self { config, state: Mutex::new(State::Idle), timeout, outage })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn session_timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout.load(Ordering::Relaxed))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The session, made if there is none.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn session(self: &Arc<Self>) -> Result<Arc<Session>, LockError> {
        let mut connecting = self.connecting()?;
        let made = connecting.wait_for(Option::is_some).await.map(|made| made.clone());
        made.ok().flatten().unwrap_or_else(|| {
            Err(LockError::new(LockErrorKind::Backend, "connecting to ZooKeeper was given up"))
        })
    }

    /// What will come of the connecting that is under way, or begins.
    ///
    /// A task of the library's own runtime does it: the session outlives the caller's.
    fn connecting(self: &Arc<Self>) -> Result<watch::Receiver<Made>, LockError> {
        let mut state = self.state();
        match &*state {
            // The sender lives until there is a result.
            State::Connecting(made) if made.has_changed().is_ok() => return Ok(made.clone()),
            State::Open(session) if !session.has_ended() => {
                return Ok(watch::channel(Some(Ok(Arc::clone(session)))).1);
            }
            State::Failed(until, error) if !until.has_passed() => return Err(error.clone()),
            State::Idle | State::Connecting(_) | State::Open(_) | State::Failed(..) => check_process()?,
        }
        let (tell, made) = watch::channel(None);
        *state = State::Connecting(made.clone());
        background::handle().spawn(Self::connect(Arc::clone(self), tell));
        Ok(made)
    }

    async fn connect(self: Arc<Self>, tell: watch::Sender<Made>) {
        let began = Instant::now();
        let made = connect::open(&self.config, &self.outage).await;
        match &made {
            Ok(_) => self.outage.ends(),
            Err(error) => self.outage.begins(began, error),
        }
        *self.state() = match &made {
            Ok(session) => {
                self.timeout.store(nanos(session.timeout()), Ordering::Relaxed);
                State::Open(Arc::clone(session))
            }
            Err(error) => State::Failed(Instant::now() + PAUSE, error.clone()),
        };
        tell.send_replace(Some(made));
    }
}

/// Refuses a child of a process that had connected. The driver waits for its sockets and timers on a thread of its own,
/// one for each process, which is not forked and not started again.
fn check_process() -> Result<(), LockError> {
    static FIRST: OnceLock<Process> = OnceLock::new();
    if FIRST.get_or_init(Process::this).is_this() {
        return Ok(());
    }
    let message = "this process was forked from one that had connected to ZooKeeper, and the driver's thread was not; \
                   connect in the children only, or start them as programs (`exec`)";
    Err(LockError::new(LockErrorKind::Unsupported, message))
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}
