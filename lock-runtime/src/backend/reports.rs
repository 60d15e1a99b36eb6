//! What a store reports: how it goes while it waits, and the loss of a hold.

use std::{fmt, sync::Arc};

use crate::{
    LockError,
    idle::idle,
    time::clock::{self, Instant},
};

/// Where a store that waits reports how it goes.
///
/// Other tasks of the process wait behind the one that asks. When their time runs out they say why, by the last report:
/// another client held the lock, or the store did not answer. An outage is never contention, and contention never an
/// outage.
#[derive(Clone)]
pub struct Progress(pub(crate) Option<Reporter>);

/// One attempt at a lock that others wait behind.
#[derive(Clone)]
pub(crate) struct Reporter {
    pub(crate) to: Arc<dyn Reports>,
    pub(crate) lock: Arc<str>,
    pub(crate) attempt: u64,
}

/// What takes the reports of a store that waits.
pub(crate) trait Reports: Send + Sync {
    /// See [`Progress::contended`].
    fn contended(&self, lock: &str, attempt: u64);

    /// See [`Progress::failed`].
    fn failed(&self, lock: &str, attempt: u64, error: &LockError);
}

impl Progress {
    /// The store answered that another client holds the lock; to be called at each such answer.
    pub fn contended(&self) {
        if let Some(Reporter { to, lock, attempt }) = &self.0 {
            to.contended(lock, *attempt);
        }
    }

    /// The store failed or did not answer in time, and is asked again within the same acquisition.
    pub fn failed(&self, error: &LockError) {
        if let Some(Reporter { to, lock, attempt }) = &self.0 {
            to.failed(lock, *attempt, error);
        }
    }

    /// Completes at `until`, to refresh a place or to look again. A future that is not polled then stops no other caller and
    /// keeps its place.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn sleep_until(&self, until: Instant) {
        idle(clock::sleep_until(until)).await;
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

/// What a store notifies when a hold of a session is lost.
pub struct LossNotifier(pub(crate) Box<dyn FnOnce(&str) + Send + Sync>);

impl LossNotifier {
    /// Notifies the holder; `why` is for the log. Does nothing once the hold is released.
    ///
    /// May be called from anywhere: it neither blocks nor panics nor needs a runtime.
    pub fn notify(self, why: &str) {
        (self.0)(why);
    }
}

impl fmt::Debug for LossNotifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LossNotifier")
    }
}
