//! A store's reports: its progress while it waits for a lock, and the loss of a lock.

use std::{
    fmt,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
};

use crate::{
    LockError,
    backend::LockId,
    idle::idle,
    time::clock::{self, Instant},
};

/// Receives reports from a store that waits for a lock.
///
/// Usually, only one task of the process asks the store for a lock, and the other tasks wait behind that task. If one
/// of the waiting tasks times out, its error gives the cause that the store last reported: another client held the
/// lock, or the store failed. Therefore, a store must never report an outage as contention, or contention as an outage.
#[derive(Clone)]
pub struct Progress(pub(crate) Option<Reporter>);

/// An attempt to acquire a lock, behind which other tasks may wait.
#[derive(Clone)]
pub(crate) struct Reporter {
    pub(crate) to: Arc<dyn Reports>,
    pub(crate) lock: LockId,
    pub(crate) attempt: u64,
}

/// Receives the reports of a store that waits for a lock.
pub(crate) trait Reports: Send + Sync {
    /// See [`Progress::contended`].
    fn contended(&self, lock: &LockId, attempt: u64);

    /// See [`Progress::failed`].
    fn failed(&self, lock: &LockId, attempt: u64, error: &LockError);
}

impl Progress {
    /// Reports that another client holds the lock. Call this method after every response that shows another holder.
    pub fn contended(&self) {
        if let Some(Reporter { to, lock, attempt }) = &self.0 {
            to.contended(lock, *attempt);
        }
    }

    /// Reports that a request failed or got no response in time, and that your store is about to repeat it.
    ///
    /// Your store may repeat requests itself, so that the acquisition keeps its place in a queue through a short
    /// outage. If there is no place to keep, return the error instead: the library then asks the store again.
    pub fn failed(&self, error: &LockError) {
        if let Some(Reporter { to, lock, attempt }) = &self.0 {
            to.failed(lock, *attempt, error);
        }
    }

    /// Sleeps until the given moment. Use this method for the pause before you refresh a place in a queue or check the
    /// lock again.
    ///
    /// The library drops an acquisition that is woken and then not polled for about two seconds, as
    /// [`Backend::acquire`](crate::backend::Backend::acquire) describes. The wake-up at the end of this sleep is an
    /// exception: it does not start this two-second countdown, because it does not mean that the lock has been
    /// granted.
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

/// Notifies the holder of a session lock that the lock has been lost.
pub struct LossNotifier(pub(crate) Box<dyn FnOnce(Loss<'_>) + Send + Sync>);

/// Why the holder of a session lock has to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss<'a> {
    /// The lock is lost, for this reason.
    Lost(&'a str),
    /// The lock was revoked. The store still has the lock for its holder.
    Revoked,
}

impl LossNotifier {
    /// Notifies the holder of the loss, and logs the reason `why`. Does nothing if the lock has already been released.
    ///
    /// This method may be called from anywhere: it neither blocks nor panics, and it needs no runtime.
    pub fn notify(self, why: &str) {
        self.send(Loss::Lost(why));
    }

    /// Notifies the holder that the lock was [revoked](crate::LockManager::revoke). Does nothing if the lock has already
    /// been released.
    ///
    /// The store keeps the lock for the holder: the library releases the lock as soon as the holder has left it, or when
    /// the deadline has passed on which the holder may have relied until now.
    ///
    /// This method may be called from anywhere: it neither blocks nor panics, and it needs no runtime.
    pub fn notify_of_revocation(self) {
        self.send(Loss::Revoked);
    }

    fn send(self, loss: Loss<'_>) {
        // The loss is logged, and a subscriber of the log may panic. The store has other holders to notify.
        let _ = panic::catch_unwind(AssertUnwindSafe(|| (self.0)(loss)));
    }
}

impl fmt::Debug for LossNotifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LossNotifier")
    }
}
