//! The present session of a store: one for the whole process, made anew when it has ended.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};
use std::time::Duration;

use tokio::sync::watch;

use super::{config::Config, session::Session};
use crate::{LockError, LockErrorKind, background, clock::Instant};

/// So long after a failure to connect nobody tries again: many callers do not make many connections.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Link {
    config: Config,
    state: Mutex<State>,
    /// The time-out that the servers last granted.
    timeout: AtomicU64,
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
        Arc::new(Self { config, state: Mutex::new(State::Idle), timeout })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn session_timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout.load(Ordering::Relaxed))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session, made if there is none.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn session(self: &Arc<Self>) -> Result<Arc<Session>, LockError> {
        let mut connecting = self.connecting();
        let made = connecting.wait_for(Option::is_some).await.map(|made| made.clone());
        made.ok().flatten().unwrap_or_else(|| {
            Err(LockError::new(LockErrorKind::Backend, "connecting to ZooKeeper was given up"))
        })
    }

    /// What will come of the connecting that is under way, or begins.
    ///
    /// A task of the library's own runtime does it: the session outlives the caller's.
    fn connecting(self: &Arc<Self>) -> watch::Receiver<Made> {
        let mut state = self.state();
        match &*state {
            // The sender lives until there is a result.
            State::Connecting(made) if made.has_changed().is_ok() => return made.clone(),
            State::Open(session) if !session.has_ended() => {
                return watch::channel(Some(Ok(Arc::clone(session)))).1;
            }
            State::Failed(until, error) if !until.has_passed() => {
                return watch::channel(Some(Err(error.clone()))).1;
            }
            State::Idle | State::Connecting(_) | State::Open(_) | State::Failed(..) => {}
        }
        let (tell, made) = watch::channel(None);
        *state = State::Connecting(made.clone());
        background::handle().spawn(Self::connect(Arc::clone(self), tell));
        made
    }

    async fn connect(self: Arc<Self>, tell: watch::Sender<Made>) {
        let made = Session::open(&self.config).await;
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

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}
