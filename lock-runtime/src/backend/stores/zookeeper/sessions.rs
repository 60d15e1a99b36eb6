//! How sessions with the ensemble are made, and with which timeout.

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
        link::{self, Link},
        outage::Outage,
    },
    process::Process,
    time::clock::nanos,
};

/// The name of this kind of store, for metrics and traces.
pub(super) const NAME: &str = "zookeeper";

#[derive(Debug)]
pub(super) struct Sessions {
    pub(super) config: Config,
    /// The session timeout that the servers granted last, in nanoseconds; before that, the requested one.
    timeout: AtomicU64,
}

impl Sessions {
    pub(super) fn link(config: Config) -> Arc<Link<Self>> {
        let timeout = AtomicU64::new(nanos(config.session_timeout));
        let outage = Outage::of(NAME, "ZooKeeper", config.servers.clone(), "no lock is granted");
        Link::new(Self { config, timeout }, outage)
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout.load(Ordering::Relaxed))
    }
}

impl link::Sessions for Sessions {
    type Session = Session;

    fn is_usable(session: &Session) -> bool {
        !session.lifetime.has_ended()
    }

    /// Fails in a process that was forked from one that had connected.
    ///
    /// The driver waits for its sockets and timers on a thread of its own, one per process, which is neither forked nor
    /// restarted.
    fn check(&self) -> Result<(), LockError> {
        static FIRST: OnceLock<Process> = OnceLock::new();
        if FIRST.get_or_init(Process::this).is_this() {
            return Ok(());
        }
        let message = "this process was forked from one that had connected to ZooKeeper, without the driver's thread; \
                       connect only in the children, or start them as programs (`exec`)";
        Err(LockError::new(LockErrorKind::Unsupported, message))
    }

    async fn open(&self, outage: &Arc<Outage>) -> Result<Arc<Session>, LockError> {
        let session = connect::open(&self.config, outage).await?;
        self.timeout.store(nanos(session.timeout()), Ordering::Relaxed);
        Ok(session)
    }
}
