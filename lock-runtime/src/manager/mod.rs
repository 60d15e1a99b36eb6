//! [`LockManager`]: a handle to a store, with the default options of its locks.

pub(crate) mod global;
mod leader;
mod operate;
mod status;

pub use self::{
    global::{AlreadySet, global, set_global, with_manager},
    leader::LeaderWatch,
    operate::LockScan,
    status::ManagerStatus,
};

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    Limits, Lock, LockError, LockErrorKind, LockKey, MultiLock,
    backend::{Backend, Capabilities},
    background,
    engine::Engine,
    key::{self, IntoLockKey},
    options::{LockOptions, WaitFor},
};

/// A handle to a store, with the default options of the locks that are acquired through this handle.
///
/// A manager is cheap to clone, and all clones use the same connections. It can be used on any tokio runtime in the
/// process, provided that the runtime has timers and I/O enabled (`enable_all`), even after the runtime on which the
/// manager was created has shut down.
///
/// ```
/// use std::time::Duration;
/// use lock_runtime::LockManager;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// let locks = LockManager::connect("memory:").await?.ttl(Duration::from_secs(10));
/// let guard = locks.lock("user:42").acquire().await?;
/// assert!(guard.is_valid());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LockManager {
    engine: Arc<Engine>,
    prefix: Arc<str>,
    /// The class of the locks whose key has none.
    class: Option<&'static str>,
    defaults: LockOptions,
}

impl LockManager {
    /// Connects to the store at `url`, such as `redis://127.0.0.1:6379` or `memory:`, and returns a manager for it.
    ///
    /// The scheme of the URL selects the store. The page [stores](crate::docs::stores#urls) has the schemes, the form of
    /// each URL, and the features that they need.
    ///
    /// # Errors
    /// * [`InvalidOptions`](LockErrorKind::InvalidOptions) if the URL is invalid or its scheme is unknown;
    /// * [`Unsupported`](LockErrorKind::Unsupported) if the store's feature is not enabled, if the scheme is reserved
    ///   for a store that this version of the crate does not implement yet (such as `mysql:`), or if the server
    ///   cannot be used for locks (such as a Redis server before 6.2, or one in cluster mode), or, with a store that has
    ///   a server, outside of a tokio runtime with timers and I/O (`enable_all`);
    /// * [`Backend`](LockErrorKind::Backend) if the store does not respond or rejects the credentials;
    /// * [`Overloaded`](LockErrorKind::Overloaded) if the operating system gives the process no thread or descriptor for
    ///   the renewal of locks.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        let locks = Self::connect_lazy(url)?;
        locks.ping().await?;
        Ok(locks)
    }

    /// Returns a manager for the store at `url`. The manager connects when it is first used.
    ///
    /// Use this if the program must be able to start [while the store is
    /// down](crate::docs::operation#if-the-store-is-down-at-startup). The URL is parsed immediately. While the store
    /// cannot be reached, no lock is granted: each acquisition tries to reach the store for up to its
    /// [`wait`](Lock::wait), and then fails with the error that [`connect`](Self::connect) would have returned.
    /// ([Permanent](LockError::is_permanent) errors are returned at once.)
    ///
    /// # Errors
    /// * [`InvalidOptions`](LockErrorKind::InvalidOptions) if the URL is invalid or its scheme is unknown;
    /// * [`Unsupported`](LockErrorKind::Unsupported) if the store's feature is not enabled, or if the scheme is
    ///   reserved for a store that this version of the crate does not implement yet (such as `mysql:`).
    ///
    /// # Example
    /// ```
    /// # #[cfg(feature = "redis")]
    /// # fn example() -> Result<(), lock_runtime::LockError> {
    /// let locks = lock_runtime::LockManager::connect_lazy("redis://127.0.0.1:6379")?;
    /// # let _ = locks;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_lazy(url: &str) -> Result<Self, LockError> {
        crate::backend::stores::store(url).map(Self::from_backend)
    }

    /// Checks that the store responds, connecting first if necessary. Use it in a readiness probe; [`status`](Self::status)
    /// returns what is known without asking the store. Of a Redis Cluster, one server that takes calls is enough.
    ///
    /// # Errors
    /// Returns the error with which an acquisition would currently fail:
    /// * [`Backend`](LockErrorKind::Backend) if the store does not respond, or rejects the connection or the
    ///   credentials;
    /// * [`Unsupported`](LockErrorKind::Unsupported) if the store cannot be used for locks, or in a forked child.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ping(&self) -> Result<(), LockError> {
        self.check_usable()?;
        background::check()?;
        self.engine.backend.ping().await
    }

    /// Fails if this process must not ask the store, or the caller's runtime lacks what the store needs.
    fn check_usable(&self) -> Result<(), LockError> {
        if let Some(process) = self.engine.process() {
            process.check()?;
        }
        self.engine.check_caller()
    }

    /// Creates a manager for `backend` with the [default](Limits::default) limits.
    #[must_use]
    pub fn new(backend: impl Backend) -> Self {
        Self::from_backend(Arc::new(backend))
    }

    pub(crate) fn from_backend(backend: Arc<dyn Backend>) -> Self {
        let can = backend.capabilities();
        let mut defaults = LockOptions::default();
        if let Some(longest) = can.longest_ttl().filter(|longest| *longest < defaults.ttl) {
            tracing::info!(ttl = ?longest, "the default ttl is the longest that this store allows");
            defaults.ttl = longest;
        }
        Self {
            prefix: can.default_prefix().into(),
            class: None,
            engine: Engine::new(backend, Limits::default()),
            defaults,
        }
    }

    #[cfg(test)]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the lock named `key`, with this manager's defaults.
    ///
    /// Nothing is sent to the store yet. If the name is invalid, acquiring the lock returns an error.
    #[must_use = "a lock does nothing until it is acquired"]
    pub fn lock(&self, key: impl IntoLockKey) -> Lock {
        Lock::new(Arc::clone(&self.engine), self.key(key), self.defaults)
    }

    /// Returns a [`MultiLock`] for the locks named `keys`: acquiring it acquires all of them or none.
    ///
    /// Nothing is sent to the store yet. If a name is invalid, or `keys` is empty, acquiring the `MultiLock` returns an
    /// error.
    #[must_use = "locks do nothing until they are acquired"]
    pub fn all(&self, keys: impl IntoIterator<Item = impl IntoLockKey>) -> MultiLock {
        let keys = keys.into_iter().map(|key| self.key(key)).collect();
        MultiLock::new(Arc::clone(&self.engine), keys, self.defaults)
    }

    fn key(&self, key: impl IntoLockKey) -> Result<LockKey, LockError> {
        Ok(key.into_lock_key(&self.prefix)?.or_class(self.class))
    }

    /// Sets the [class](LockKey::with_class) of the locks whose key has none, for metrics and traces; `other` by
    /// default.
    #[must_use]
    pub fn class(mut self, class: &'static str) -> Self {
        self.class = Some(class);
        self
    }

    /// Sets how long a [lease](crate::docs::glossary#locks) lasts if it is not renewed: between 100 ms and 24 h; by
    /// default 30 s, or the longest that the store allows if that is shorter ([`Capabilities::longest_ttl`]).
    ///
    /// If the holder crashes, the lock becomes free within this time, unless it is a session lock: see [what frees a
    /// lock after a crash](crate::docs::stores#how-their-locks-behave).
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.defaults.ttl = ttl;
        self
    }

    /// Sets how long [`Lock::acquire`] waits for the lock, or [`MultiLock::acquire`] for all the locks; 10 s by
    /// default. Zero means a single attempt.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.defaults.wait = WaitFor::AtMost(wait);
        self
    }

    /// Sets whether the leases of held locks are renewed; on by default.
    #[must_use]
    pub fn auto_renew(mut self, auto_renew: bool) -> Self {
        self.defaults.auto_renew = auto_renew;
        self
    }

    /// Sets the maximum time that a lock is held, however often its lease is renewed; 1 h by default. `Duration::MAX`
    /// means no limit.
    ///
    /// This frees a lock whose holder is alive but stuck.
    #[must_use]
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.defaults.max_hold = max_hold;
        self
    }

    /// Sets the retry delay that a response suggests to an HTTP or gRPC client when the lock is held (`Retry-After`
    /// or `RetryInfo`); 1 s by default.
    ///
    /// Choose roughly the time for which the lock is usually held. If the holder is in this process and does not renew
    /// its lease, the response suggests the time remaining on that lease instead of this value. In all other cases,
    /// this value is used, because the holder may be renewing its lease: each renewal resets the remaining time, which
    /// would therefore be a poor suggestion.
    #[must_use]
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.defaults.retry_after = retry_after;
        self
    }

    /// Returns a manager for the same store that puts `prefix` in front of each lock's name in the store.
    ///
    /// The default prefix [depends on the store](crate::docs::stores#how-their-locks-behave): it may be empty. With an
    /// empty prefix, the name in the store is exactly the name of the lock, so that other programs can use the same lock.
    ///
    /// Always use a given lock with the same prefix. The lock `a` with the prefix `lock:` and the lock `lock:a` with an
    /// empty prefix are the same lock. With `redis:`, however, each of these two combinations of prefix and name has its
    /// own queue, so the waiters are not served in order of arrival.
    ///
    /// # Errors
    /// [`InvalidOptions`](LockErrorKind::InvalidOptions) if the prefix is longer than 128 bytes, contains a control
    /// character or a `~`, or contains braces other than those of a single hash tag such as `{tenant}`.
    pub fn with_prefix(mut self, prefix: &str) -> Result<Self, LockError> {
        let problem = if prefix.len() > key::MAX_PREFIX_BYTES {
            Err(format!("{} bytes long, at most {} are allowed", prefix.len(), key::MAX_PREFIX_BYTES))
        } else if prefix.contains('~') {
            Err("contains `~`, which is reserved".into())
        } else {
            key::check_characters(prefix)
        };
        problem.map_err(|problem| {
            LockError::new(LockErrorKind::InvalidOptions, format!("prefix {prefix:?}: {problem}"))
        })?;
        self.prefix = prefix.into();
        Ok(self)
    }

    /// Returns a manager for the same store with these limits on waiters and held locks.
    ///
    /// The new manager counts only its own locks and waiters, not those of the manager it was made from.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.engine = Engine::new(Arc::clone(&self.engine.backend), limits);
        self
    }

    /// Returns the capabilities of the store.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.engine.backend.capabilities()
    }

    /// Ends all acquisitions, then waits until the store has been cleaned up: until every lock and queue entry left
    /// behind by an acquisition or a dropped guard is gone.
    ///
    /// New and waiting acquisitions fail with [`ShutDown`](LockErrorKind::ShutDown), and waiting ones leave the store's
    /// queue. Existing guards stay valid, their leases are still renewed, and they can still be released. All clones of
    /// the manager are shut down, too, as are managers made from it by [`with_prefix`](Self::with_prefix), but not
    /// those made by [`with_limits`](Self::with_limits).
    ///
    /// If the store responds, this takes about a round trip, even after an outage, because releases that failed during
    /// the outage are retried at once. If the store does not respond, this returns once all leases whose release is
    /// still pending are certain to have expired: after at most the longest `ttl` (with `redis:`, at least 7 s if an
    /// acquisition was waiting in the server's queue) and about a second more, in which a request that was sent before
    /// may still be executed. For session locks, it returns when the session has ended. An acquisition whose future is not
    /// polled delays this by 2 to 2.5 s, after which the acquisition is abandoned.
    ///
    /// If a lock is kept in the background for [`hold_at_least`](Lock::hold_at_least), `shutdown` neither waits for it
    /// nor releases it early. The lock is released when its minimum time has elapsed. If the process exits before then,
    /// the lock stays held only until its lease expires.
    ///
    /// In a forked child, this returns at once, because the locks belong to the parent.
    ///
    /// # Cancel safety
    /// Cancel safe. If the future is dropped, the clean-up continues in the background.
    pub async fn shutdown(&self) {
        self.engine.shut_down().await;
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager")
            .field("backend", &self.engine.backend)
            .field("prefix", &self.prefix)
            .field("defaults", &self.defaults)
            .finish_non_exhaustive()
    }
}
