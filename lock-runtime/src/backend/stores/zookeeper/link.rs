//! The current session of a store: one for the whole process, replaced once it has ended.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{config::Config, connect, session::Session};
use crate::{
    LockError, LockErrorKind,
    backend::common::{
        outage::Outage,
        single_flight::{self, SingleFlight},
    },
    background,
    process::Process,
    time::clock::Instant,
};

#[derive(Debug)]
pub(super) struct Link {
    config: Config,
    session: SingleFlight<Arc<Session>>,
    /// The session timeout that the servers granted last, in nanoseconds; before that, the requested one.
    timeout: AtomicU64,
    outage: Arc<Outage>,
}

impl Link {
    pub(super) fn new(config: Config) -> Arc<Self> {
        let timeout = AtomicU64::new(nanos(config.session_timeout));
        let outage = Arc::new(Outage::of(format!("ZooKeeper at {}", config.servers), "no lock is granted"));
        Arc::new(Self { config, session: SingleFlight::default(), timeout, outage })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn session_timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout.load(Ordering::Relaxed))
    }

    /// Returns the session, and makes one if there is none: on the library's own runtime, because it outlives the
    /// caller's.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn session(self: &Arc<Self>) -> Result<Arc<Session>, LockError> {
        let is_usable = |session: &Arc<Session>| !session.has_ended();
        if let Some(session) = self.session.open(is_usable) {
            return Ok(session);
        }
        let attempt = self.session.join(is_usable, |attempt| {
            check_process()?;
            background::handle().spawn(Self::connect(Arc::clone(self), attempt));
            Ok(())
        })?;
        single_flight::made(attempt).await.unwrap_or_else(|| {
            Err(LockError::new(LockErrorKind::Backend, "connecting to ZooKeeper was given up"))
        })
    }

    async fn connect(self: Arc<Self>, attempt: single_flight::Attempt<Arc<Session>>) {
        let began = Instant::now();
        let made = connect::open(&self.config, &self.outage).await;
        match &made {
            Ok(session) => {
                self.outage.ends();
                self.timeout.store(nanos(session.timeout()), Ordering::Relaxed);
            }
            Err(error) => self.outage.begins(began, error),
        }
        self.session.finish(attempt, made);
    }
}

/// Fails in a process that was forked from one that had connected.
///
/// The driver waits for its sockets and timers on a thread of its own, one per process, which is neither forked nor
/// restarted.
fn check_process() -> Result<(), LockError> {
    static FIRST: OnceLock<Process> = OnceLock::new();
    if FIRST.get_or_init(Process::this).is_this() {
        return Ok(());
    }
    let message = "this process was forked from one that had connected to ZooKeeper, without the driver's thread; \
                   connect only in the children, or start them as programs (`exec`)";
    Err(LockError::new(LockErrorKind::Unsupported, message))
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}
