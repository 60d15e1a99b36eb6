//! A named lock that is not held yet.

pub(crate) mod acquire;
mod lead;
pub(crate) mod multi;
mod once_per;

pub use self::multi::MultiLock;

use std::{fmt, pin::pin, slice, sync::Arc, time::Duration};

use crate::{
    LockError, LockErrorKind, LockGuard, LockKey,
    backend::{LockId, Mode, Wait},
    engine::{Engine, request::Request},
    lock::acquire::trace::traced,
    options::{LockOptions, WaitFor, option_methods},
};

/// A named lock with its options.
///
/// Creating a `Lock` sends nothing to the store: the lock is not held until it is [acquired](Self::acquire). A `Lock`
/// can be kept and acquired any number of times.
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    engine: Arc<Engine>,
    key: Result<LockKey, LockError>,
    pub(crate) options: LockOptions,
    /// The period in which the lock is acquired at most once.
    pub(crate) once_per: Option<Duration>,
}

impl Lock {
    pub(crate) fn new(engine: Arc<Engine>, key: Result<LockKey, LockError>, options: LockOptions) -> Self {
        Self { engine, key, options, once_per: None }
    }

    option_methods!();

    /// Sets the [class](LockKey::with_class) of the lock, for metrics and traces. The default is the class of the key,
    /// or else the manager's.
    pub fn class(mut self, class: &'static str) -> Self {
        self.key = self.key.map(|key| key.with_class(class));
        self
    }

    /// Acquires the lock, waiting for at most [`wait`](Self::wait).
    ///
    /// # Errors
    /// * [`Contended`](LockErrorKind::Contended) if another caller holds the lock and `wait` is zero;
    /// * [`Timeout`](LockErrorKind::Timeout) if another caller still held the lock at the end of the wait, or if the
    ///   future was not polled in time (see below);
    /// * [`Backend`](LockErrorKind::Backend) if the store failed or did not respond within the wait;
    /// * [`InvalidKey`](LockErrorKind::InvalidKey) or [`InvalidOptions`](LockErrorKind::InvalidOptions) if the name
    ///   or an option is invalid;
    /// * [`Unsupported`](LockErrorKind::Unsupported) if the server cannot be used for locks, or in a forked child;
    /// * [`Overloaded`](LockErrorKind::Overloaded) if one of the [`Limits`](crate::Limits) is reached;
    /// * [`ShutDown`](LockErrorKind::ShutDown) if the manager has been shut down;
    /// * [`WouldDeadlock`](LockErrorKind::WouldDeadlock) if the calling code is already running under the lock (see
    ///   [`reentrant`](Self::reentrant));
    /// * [`Lost`](LockErrorKind::Lost) if the calling code is already running under the lock, but that lock has been
    ///   lost.
    ///
    /// # Cancel safety
    /// If the future is dropped, the acquisition leaves the queue and no lock stays held. Requests that were already
    /// sent to the store are undone in the background, within a round trip if the store can be reached. If the store
    /// cannot be reached, a lock that such a request left there expires within one `ttl` of its grant (a session lock,
    /// when the session ends).
    ///
    /// A future that is not polled does not keep the lock from other callers for long. If the future is woken but
    /// then not polled for about two seconds (see [unpolled futures](crate::docs::safety#unpolled-futures)), the
    /// acquisition is abandoned as if the future had been dropped, even if the lock has already been granted to it.
    /// When the future is polled again, the acquisition starts over, or fails with `Timeout` if its wait has ended.
    pub async fn acquire(&self) -> Result<LockGuard, LockError> {
        self.acquire_until(self.options.wait.starting_now()).await
    }

    /// Makes a single attempt to acquire the lock. Returns `None` if another caller holds the lock.
    ///
    /// # Errors
    /// Returns the same errors as [`acquire`](Self::acquire), except `Contended`. If the store does not respond, this
    /// method returns `Backend` once the [timeouts in the store's URL](crate::docs::stores#how-their-locks-behave) have
    /// passed. `Timeout` is possible only if the future was not polled in time.
    ///
    /// # Cancel safety
    /// The same as [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, LockError> {
        match self.acquire_until(Wait::No).await {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.kind() == LockErrorKind::Contended => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn acquire_until(&self, wait: Wait) -> Result<LockGuard, LockError> {
        let lock = LockId { key: self.key.clone()?, mode: Mode::Exclusive };
        let request = Request { lock, options: self.options, wait };
        let acquiring = pin!(async {
            match self.once_per {
                // In a box, so that the future of other acquisitions does not become larger.
                Some(length) => Box::pin(once_per::acquire(&self.engine, &request, length)).await,
                None => acquire::acquire(&self.engine, &request).await,
            }
        });
        let acquired = traced(&self.engine, slice::from_ref(&request.lock), acquiring).await;
        acquired.map_err(|error| error.with_key(&request.lock.key))
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("key", &self.key)
            .field("options", &self.options)
            .field("once_per", &self.once_per)
            .finish_non_exhaustive()
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
