//! The reports of a store: its progress while it waits, and the loss of a hold.

use std::{fmt, sync::Arc};

use crate::{
    LockError,
    idle::idle,
    time::clock::{self, Instant},
};

/// Where a waiting store reports its progress.
///
/// Other tasks of the process wait behind the one that asks. When their time runs out, their error gives the reason
/// from the last report: another client held the lock, or the store did not answer. An outage is never contention,
/// and contention never an outage.
#[derive(Clone)]
pub struct Progress(pub(crate) Option<Reporter>);

/// An attempt at a lock, behind which other tasks may wait.
#[derive(Clone)]
pub(crate) struct Reporter {
    pub(crate) to: Arc<dyn Reports>,
    pub(crate) lock: Arc<str>,
    pub(crate) attempt: u64,
}

/// Receives the reports of a waiting store.
pub(crate) trait Reports: Send + Sync {
    /// See [`Progress::contended`].
    fn contended(&self, lock: &str, attempt: u64);

    /// See [`Progress::failed`].
    fn failed(&self, lock: &str, attempt: u64, error: &LockError);
}

impl Progress {
    /// Reports that another client holds the lock. To be called at each such answer.
    pub fn contended(&self) {
        if let Some(Reporter { to, lock, attempt }) = &self.0 {
            to.contended(lock, *attempt);
        }
    }

    /// Reports that the store failed or did not answer in time, and is asked again within the same acquisition.
    pub fn failed(&self, error: &LockError) {
        if let Some(Reporter { to, lock, attempt }) = &self.0 {
            to.failed(lock, *attempt, error);
        }
    }

    /// Completes at `until`, to refresh a place or to check again. A future that is not polled then holds up no other
    /// caller and keeps its place.
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

/// Notifies the holder of a session lock of its loss.
pub struct LossNotifier(pub(crate) Box<dyn FnOnce(&str) + Send + Sync>);

impl LossNotifier {
    /// Notifies the holder; `why` goes into the log. Does nothing once the hold is released.
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
