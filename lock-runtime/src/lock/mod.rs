//! A named lock, not held yet.

pub(crate) mod acquire;
pub(crate) mod multi;

pub use self::multi::MultiLock;

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    LockError, LockErrorKind, LockGuard, LockKey,
    backend::{Mode, Wait},
    engine::{Engine, request::Request},
    options::{LockOptions, WaitFor, option_methods},
};

/// A named lock with its options.
///
/// Nothing is held until it is acquired. The value can be kept and acquired again.
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    engine: Arc<Engine>,
    key: Result<LockKey, LockError>,
    pub(crate) options: LockOptions,
}

impl Lock {
    pub(crate) fn new(engine: Arc<Engine>, key: Result<LockKey, LockError>, options: LockOptions) -> Self {
        Self { engine, key, options }
    }

    option_methods!();

    /// Acquires the lock, waiting for at most [`wait`](Self::wait).
    ///
    /// # Errors
    /// * [`Contended`](LockErrorKind::Contended) if another holder has the lock and `wait` is zero,
    ///   [`Timeout`](LockErrorKind::Timeout) if the wait ran out;
    /// * [`Backend`](LockErrorKind::Backend) if the store did not answer within the wait;
    /// * [`InvalidKey`](LockErrorKind::InvalidKey) or [`InvalidOptions`](LockErrorKind::InvalidOptions) if the key or
    ///   an option is invalid, [`Overloaded`](LockErrorKind::Overloaded) if a limit is reached,
    ///   [`ShutDown`](LockErrorKind::ShutDown) after the manager's shutdown;
    /// * [`WouldDeadlock`](LockErrorKind::WouldDeadlock) if the calling section already holds the lock, see
    ///   [`reentrant`](Self::reentrant), and [`Lost`](LockErrorKind::Lost) if it has lost it.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue and leaves no hold behind. Requests already sent to the
    /// store are undone in the background: within a round trip while the store can be reached, otherwise by the end of
    /// `ttl`.
    ///
    /// An unpolled future does not keep the lock from others. Two to two and a half seconds after it was woken, it is
    /// given up as if it had been dropped; it begins anew when it is polled again.
    pub async fn acquire(&self) -> Result<LockGuard, LockError> {
        self.acquire_until(self.options.wait.starting_now()).await
    }

    /// Makes one attempt to acquire the lock; returns `None` if another holder has it.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), except that a busy lock is not an error.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, LockError> {
        match self.acquire_until(Wait::No).await {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.kind() == LockErrorKind::Contended => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn acquire_until(&self, wait: Wait) -> Result<LockGuard, LockError> {
        let request = Request { key: self.key.clone()?, mode: Mode::Exclusive, options: self.options, wait };
        acquire::acquire(&self.engine, &request).await.map_err(|error| error.with_key(&request.key))
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("key", &self.key).field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::LockManager;

    #[cfg(feature = "memory")]
    #[tokio::test]
    async fn what_is_shown_names_no_other_lock() {
        let locks = LockManager::new(crate::backend::Memory::new());
        let _guard = locks.lock("canary").acquire().await.expect("free");
        let ours = locks.lock("ours");
        let shown = format!("{ours:?} {locks:?} {:?}", locks.engine());
        assert!(shown.contains("ours") && !shown.contains("canary"), "{shown}");
    }
}
