//! The engine: everything between the managers of one store and the store.

pub(crate) mod cohort;
pub(crate) mod hold;
pub(crate) mod in_flight;
pub(crate) mod in_store;
pub(crate) mod limits;
pub(crate) mod loss;
pub(crate) mod permit;
pub(crate) mod releaser;
pub(crate) mod renewal;
pub(crate) mod request;
mod schedule;
pub(crate) mod terms;
pub(crate) mod turn_end;
pub(crate) mod unpolled;
mod waiters;

pub use self::limits::Limits;

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::sync::Notify;

use crate::{
    LockError, LockErrorKind,
    backend::{Backend, Cleanup, RenewsEarly, RevocationNotifier},
    background, caller,
    engine::{
        cohort::Cohorts, in_flight::InFlight, releaser::Releaser, renewal::Renewals, terms::Origin,
        unpolled::Waiting,
    },
    metrics::Metrics,
    process::Process,
    sync::check_or_wait,
};

/// One store with its queues, renewals and releases.
pub(crate) struct Engine {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) cohorts: Arc<Cohorts>,
    pub(crate) renewals: Arc<Renewals>,
    pub(crate) releaser: Arc<Releaser>,
    pub(crate) limits: Limits,
    pub(crate) metrics: Arc<Metrics>,
    /// The number of acquisitions in progress. An acquisition that ends without a guard is counted until everything
    /// that the acquisition leaves in the store has been passed to the releaser.
    pub(crate) asking: Arc<InFlight>,
    /// The waiting acquisitions.
    pub(crate) waiting: Arc<Waiting>,
    /// The number of acquisitions that wait for a lock or for the store's answer.
    pub(crate) unanswered: Arc<InFlight>,
    /// The number of locks that are held or requested.
    held: AtomicUsize,
    /// The number of locks that are requested and not held.
    requested: AtomicUsize,
    /// The process in which the managers work; `None` if no other process sees the locks of the store.
    process: Option<Process>,
    shut_down: AtomicBool,
    shutting_down: Notify,
}

impl Engine {
    pub(crate) fn new(backend: Arc<dyn Backend>, limits: Limits) -> Arc<Self> {
        let cohorts = Cohorts::new(limits);
        let metrics = Arc::new(Metrics::of(backend.capabilities().name()));
        let renewals = Arc::<Renewals>::default();
        let renews_early: Weak<dyn RenewsEarly> = Arc::<Renewals>::downgrade(&renewals);
        backend.on_revocation(RevocationNotifier(renews_early));
        Arc::new(Self {
            process: backend.capabilities().is_shared_between_processes().then(Process::this),
            backend,
            waiting: Waiting::new(&cohorts),
            cohorts,
            renewals,
            releaser: Releaser::new(background::handle(), Arc::clone(&metrics)),
            limits,
            metrics,
            asking: Arc::default(),
            unanswered: Arc::default(),
            held: AtomicUsize::new(0),
            requested: AtomicUsize::new(0),
            shut_down: AtomicBool::new(false),
            shutting_down: Notify::new(),
        })
    }

    /// Returns whether `other` has the same store, so that the locks of both engines exclude each other.
    pub(crate) fn is_store_of(&self, other: &Self) -> bool {
        // Two managers with different limits have an engine each, and share the backend.
        Arc::ptr_eq(&self.backend, &other.backend) || {
            let names = other.backend.names();
            self.backend.names().iter().any(|name| names.contains(name))
        }
    }

    pub(crate) fn cleanup(&self) -> Cleanup {
        Cleanup(Arc::<Releaser>::clone(&self.releaser))
    }

    /// Returns the number of locks that are held.
    pub(crate) fn held(&self) -> usize {
        let requested = self.requested.load(Ordering::Relaxed);
        self.held.load(Ordering::Relaxed).saturating_sub(requested)
    }

    pub(crate) fn check_open(&self) -> Result<(), LockError> {
        if self.shut_down.load(Ordering::SeqCst) { Err(shut_down()) } else { Ok(()) }
    }

    /// Fails if the store has a server, and the caller's runtime lacks the timers or the I/O to reach the server.
    pub(crate) fn check_caller(&self) -> Result<(), LockError> {
        // A store inside the process needs neither timers nor I/O of the caller's runtime.
        if self.process.is_some() { caller::check() } else { Ok(()) }
    }

    /// Returns the process to which the holds of this store belong; `None` if no other process sees its locks.
    pub(crate) fn process(&self) -> Option<Process> {
        self.process
    }

    /// Returns the origin of a hold that is granted now.
    pub(crate) fn origin(&self) -> Origin {
        Origin { process: self.process, session_timeout: self.backend.capabilities().session_timeout() }
    }

    /// Completes with an error when the manager is shut down.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn closed(&self) -> LockError {
        loop {
            if let Some(error) = check_or_wait(&self.shutting_down, || self.check_open().err()).await {
                return error;
            }
        }
    }

    /// Fails all waiting and all later acquisitions, and waits until nothing is left to clean up.
    pub(crate) async fn shut_down(&self) {
        self.shut_down.store(true, Ordering::SeqCst);
        // A forked child does not wait: the counts of unfinished work are copies of the parent's, and nothing in the
        // child would bring them to zero. Besides, a mutex may have been locked at the fork.
        if self.process.is_some_and(|process| !process.is_this()) {
            return;
        }
        self.shutting_down.notify_waiters();
        // Also wakes the acquisitions that were polled only once: at their first poll, they do not yet wait for
        // `shutting_down`.
        self.waiting.close();
        // Each acquisition ends at its next poll. An unpolled acquisition is given up.
        self.asking.drained().await;
        self.releaser.drained().await;
    }
}

/// Omits the locks, because their names belong to other callers.
impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("backend", &self.backend)
            .field("limits", &self.limits)
            .field("held", &self.held)
            .field("shut_down", &self.shut_down)
            .finish_non_exhaustive()
    }
}

fn shut_down() -> LockError {
    LockError::new(LockErrorKind::ShutDown, "the manager was shut down and acquires no more locks")
}
