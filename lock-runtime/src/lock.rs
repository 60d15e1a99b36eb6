//! A named lock, nothing held yet.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    LockError, LockErrorKind, LockGuard, LockKey, acquire,
    backend::Wait,
    options::{LockOptions, WaitFor},
    shared::Shared,
};

/// A named lock with its options. Nothing is held until it is acquired; it can be kept and acquired again.
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    shared: Arc<Shared>,
    key: Result<LockKey, LockError>,
    options: LockOptions,
}

impl Lock {
    pub(crate) fn new(shared: Arc<Shared>, key: Result<LockKey, LockError>, options: LockOptions) -> Self {
        Self { shared, key, options }
    }

    /// How long the lease lasts unless it is renewed; the manager's unless set, between 100 ms and 24 h.
    ///
    /// After a crash the lock is free at the latest after this time. A short lease means a short outage and little
    /// patience with a slow network; the default of 30 s suits most.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = ttl;
        self
    }

    /// How long [`acquire`](Self::acquire) waits for another holder; the manager's unless set. Zero means one
    /// attempt.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = WaitFor::AtMost(wait);
        self
    }

    /// Lets [`acquire`](Self::acquire) wait without an end.
    pub fn wait_forever(mut self) -> Self {
        self.options.wait = WaitFor::Forever;
        self
    }

    /// Whether the lease is renewed while it is held; the manager's unless set. Without renewal the lock is lost
    /// after `ttl`.
    pub fn auto_renew(mut self, auto_renew: bool) -> Self {
        self.options.auto_renew = auto_renew;
        self
    }

    /// How long the lock is held at most, however often it is renewed; the manager's unless set. `Duration::MAX`
    /// means no limit.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.options.max_hold = max_hold;
        self
    }

    /// Whether a section that holds this lock already may enter it again; off unless switched on.
    ///
    /// Otherwise asking for it is [`WouldDeadlock`](LockErrorKind::WouldDeadlock) at once. The section is what runs in
    /// [`LockGuard::run`], in the attribute or behind a layer, and whatever it polls in turn; not what it spawns. The
    /// guard of the inner acquisition shares the outer hold, with its token and its length: it neither ends nor
    /// prolongs it, and is lost with it. The other options of the inner acquisition mean nothing then.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// # let locks = lock_runtime::LockManager::connect("memory:").await?;
    /// use lock_runtime::LockErrorKind;
    ///
    /// let lock = locks.lock("user:42");
    /// let section = async {
    ///     let refused = lock.acquire().await.unwrap_err();
    ///     assert_eq!(refused.kind(), LockErrorKind::WouldDeadlock);
    ///     let again = lock.clone().reentrant(true).acquire().await?;
    ///     again.release().await
    /// };
    /// lock.acquire().await?.run(section).await??;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reentrant(mut self, reentrant: bool) -> Self {
        self.options.reentrant = reentrant;
        self
    }

    /// Acquires the lock, waiting as long as [`wait`](Self::wait) says.
    ///
    /// # Errors
    /// * [`Contended`](LockErrorKind::Contended) when somebody else holds it and `wait` is zero,
    ///   [`Timeout`](LockErrorKind::Timeout) when the wait ran out;
    /// * [`Backend`](LockErrorKind::Backend) when the store did not answer within the wait;
    /// * [`InvalidKey`](LockErrorKind::InvalidKey), [`InvalidOptions`](LockErrorKind::InvalidOptions) for what the
    ///   caller chose, [`Overloaded`](LockErrorKind::Overloaded) for a limit that is reached,
    ///   [`ShutDown`](LockErrorKind::ShutDown) after the manager's shutdown;
    /// * [`WouldDeadlock`](LockErrorKind::WouldDeadlock) when the section that asks holds it already, see
    ///   [`reentrant`](Self::reentrant), and [`Lost`](LockErrorKind::Lost) when it has lost it.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue and leaves no hold behind: what was already asked of the
    /// store is undone in the background, within a round trip while the store can be reached, else by the end of
    /// `ttl`.
    pub async fn acquire(&self) -> Result<LockGuard, LockError> {
        self.acquire_until(self.options.wait.starting_now()).await
    }

    /// Makes one attempt; `None` when somebody else holds the lock.
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
        let key = self.key.clone()?;
        acquire::acquire(&self.shared, &key, &self.options, wait).await.map_err(|error| error.with_key(&key))
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
        let shown = format!("{ours:?} {locks:?} {:?}", locks.shared());
        assert!(shown.contains("ours") && !shown.contains("canary"), "{shown}");
    }
}
