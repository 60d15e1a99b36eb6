//! What a store reports: its progress while it waits for a lock, and the loss of a lock.

use std::{fmt, sync::Arc};

use crate::{
    LockError,
    idle::idle,
    time::clock::{self, Instant},
};

/// Receives reports from a store that waits for a lock.
///
/// Only one task of the process asks the store for the lock; others wait behind it. If the wait of one of them times
/// out, its error gives the reason that was reported last: another client held the lock, or the store failed. So an
/// outage must never be reported as contention, nor contention as an outage.
#[derive(Clone)]
pub struct Progress(pub(crate) Option<Reporter>);

/// An attempt to acquire a lock, behind which other tasks may wait.
#[derive(Clone)]
pub(crate) struct Reporter {
    pub(crate) to: Arc<dyn Reports>,
    pub(crate) lock: Arc<str>,
    pub(crate) attempt: u64,
}

/// Receives the reports of a store that waits for a lock.
pub(crate) trait Reports: Send + Sync {
    /// See [`Progress::contended`].
    fn contended(&self, lock: &str, attempt: u64);

    /// See [`Progress::failed`].
    fn failed(&self, lock: &str, attempt: u64, error: &LockError);
}

impl Progress {
    /// Reports that another client holds the lock. A store calls this method at each response that says so.
    pub fn contended(&self) {
        if let Some(Reporter { to, lock, attempt }) = &self.0 {
            to.contended(lock, *attempt);
        }
    }

    /// Reports that the store failed or did not respond in time, and that this acquisition is about to ask it again.
    ///
    /// A store does so to keep its place in a queue through a short outage. Otherwise it returns the error, and the
    /// library asks again.
    pub fn failed(&self, error: &LockError) {
        if let Some(Reporter { to, lock, attempt }) = &self.0 {
            to.failed(lock, *attempt, error);
        }
    }

    /// Sleeps until the moment `until`, after which the store refreshes its place or checks again.
    ///
    /// The wake-up at the end of this sleep does not count for the time limit on polls that
    /// [`Backend::acquire`](crate::backend::Backend::acquire) describes. So an acquisition that is not polled after it
    /// is not given up for that reason.
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

/// Notifies the holder of a session lock that the lock is lost.
pub struct LossNotifier(pub(crate) Box<dyn FnOnce(&str) + Send + Sync>);

impl LossNotifier {
    /// Notifies the holder, and logs the reason `why`. Does nothing if the lock has been released.
    ///
    /// This method may be called from anywhere: it neither blocks nor panics, and it needs no runtime.
    pub fn notify(self, why: &str) {
        (self.0)(why);
    }
}

impl fmt::Debug for LossNotifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LossNotifier")
    }
}
