//! [`LockManager`]: a store, with the defaults of its locks.

mod global;

pub(crate) use self::global::current_manager;
pub use self::global::{global, set_global, with_manager};

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    Limits, Lock, LockError, LockErrorKind, MultiLock,
    backend::{Backend, Capabilities},
    engine::Engine,
    key::{self, IntoLockKey},
    options::{LockOptions, WaitFor},
};

/// A store, with the defaults of its locks. Cheap to clone; all clones use the same connections.
///
/// It works on every tokio runtime of the process that has timers and I/O (`enable_all`), and outlives the runtime on
/// which it was created.
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
    defaults: LockOptions,
}

impl LockManager {
    /// Connects to the store at `url` and returns a manager of it. The scheme chooses the store.
    ///
    /// | scheme | store | feature |
    /// |---|---|---|
    /// | `memory:`, `memory:name` | this process; one store per name | `memory` |
    /// | `redis://[user:password@]host[:port][/db]`, `rediss://…`, `redis+unix:///path` | one Redis server | `redis`, `tls` |
    /// | `zookeeper://[user:password@]host[:port],…[/chroot]`, `zookeeper+tls://…` | a ZooKeeper ensemble | `zookeeper`, `tls` |
    ///
    /// # Errors
    /// [`InvalidOptions`](LockErrorKind::InvalidOptions) for an invalid URL,
    /// [`Unsupported`](LockErrorKind::Unsupported) for a store that is not compiled in, does not exist yet or is
    /// unsuitable for locks, [`Backend`](LockErrorKind::Backend) for a store that does not answer or refuses the
    /// credentials.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        let locks = Self::connect_lazy(url)?;
        locks.ping().await?;
        Ok(locks)
    }

    /// Returns a manager of the store at `url` that connects on first use.
    ///
    /// This is for a program that has to start while its store is down, see
    /// [the store is down at start](crate::docs::operation#the-store-is-down-at-start). The URL is read now. An error
    /// of the store that [`connect`](Self::connect) would return is returned by every acquisition until the store can
    /// be reached: no lock is granted without it.
    ///
    /// # Errors
    /// [`InvalidOptions`](LockErrorKind::InvalidOptions) for an invalid URL,
    /// [`Unsupported`](LockErrorKind::Unsupported) for a store that is not compiled in or does not exist yet.
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

    /// Checks that the store answers, connecting first if necessary; for a readiness probe.
    ///
    /// # Errors
    /// The error with which an acquisition would fail now: [`Backend`](LockErrorKind::Backend) for a store that does
    /// not answer or refuses us, [`Unsupported`](LockErrorKind::Unsupported) for one that is unsuitable for locks.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ping(&self) -> Result<(), LockError> {
        if let Some(process) = self.engine.process() {
            process.check()?;
        }
        self.engine.backend.ping().await
    }

    /// Creates a manager of `backend`, with [default](Limits::default) limits of its own.
    #[must_use]
    pub fn new(backend: impl Backend) -> Self {
        Self::from_backend(Arc::new(backend))
    }

    pub(crate) fn from_backend(backend: Arc<dyn Backend>) -> Self {
        Self {
            prefix: backend.capabilities().default_prefix.into(),
            engine: Engine::new(backend, Limits::default()),
            defaults: LockOptions::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the lock named `key`, with this manager's defaults.
    ///
    /// The store is not asked yet. An invalid name is an error of the acquisition.
    #[must_use = "a lock does nothing until it is acquired"]
    pub fn lock(&self, key: impl IntoLockKey) -> Lock {
        Lock::new(Arc::clone(&self.engine), key.into_lock_key(&self.prefix), self.defaults)
    }

    /// Returns the locks named by `keys`, to be held together: all of them or none.
    ///
    /// An invalid name, or no name at all, is an error of the acquisition.
    #[must_use = "locks do nothing until they are acquired"]
    pub fn all(&self, keys: impl IntoIterator<Item = impl IntoLockKey>) -> MultiLock {
        let keys = keys.into_iter().map(|key| key.into_lock_key(&self.prefix)).collect();
        MultiLock::new(Arc::clone(&self.engine), keys, self.defaults)
    }

    /// Sets how long a lease lasts unless it is renewed, between 100 ms and 24 h; 30 s by default.
    ///
    /// After a crash the lock is free after this time at the latest.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.defaults.ttl = ttl;
        self
    }

    /// Sets how long [`Lock::acquire`] waits; 10 s by default. Zero means one attempt.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.defaults.wait = WaitFor::AtMost(wait);
        self
    }

    /// Sets whether held locks are renewed; on by default.
    #[must_use]
    pub fn auto_renew(mut self, auto_renew: bool) -> Self {
        self.defaults.auto_renew = auto_renew;
        self
    }

    /// Sets the maximum time that a lock is held, however often it is renewed; 1 h by default. `Duration::MAX` means no
    /// limit.
    ///
    /// The limit ends a hold whose holder is alive but stuck.
    #[must_use]
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.defaults.max_hold = max_hold;
        self
    }

    /// Sets the delay advised to a client that finds a lock held: `Retry-After` in HTTP, `RetryInfo` in gRPC; 1 s by
    /// default.
    ///
    /// Choose about the length of a section. The remaining lease of the holder, 30 s or so, says nothing about that
    /// while it is renewed. If the holder is in this process and known not to renew, its remaining lease is advised
    /// instead.
    #[must_use]
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.defaults.retry_after = retry_after;
        self
    }

    /// Returns a manager of the same store whose locks carry `prefix` in the store.
    ///
    /// The default is the store's own prefix, which is `lock:` for all stores of this crate. With an empty prefix a
    /// lock has exactly the name that it is given, and shares it with other programs. Name a lock through one prefix
    /// only: `a` under `lock:` and `lock:a` under none exclude each other, but their waiters stand in two queues.
    ///
    /// # Errors
    /// [`InvalidOptions`](LockErrorKind::InvalidOptions) for more than 128 bytes, a control character, a `~`, or
    /// braces that are not one hash tag.
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

    /// Returns a manager of the same store with other limits on waiters and held locks.
    ///
    /// Locks that were acquired through the old manager are not counted.
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

    /// Ends all acquisitions, then waits until everything that was dropped or left in doubt is cleaned up.
    ///
    /// New and waiting acquisitions end with [`ShutDown`](LockErrorKind::ShutDown) and leave their places in the
    /// store's queue. Existing guards stay valid and renewed, and can still be released. All clones of the manager are
    /// shut down. A hold kept for [`hold_at_least`](Lock::hold_at_least) is neither waited for nor released early: it
    /// ends at its time while the process lives, otherwise with its lease.
    ///
    /// With a store that answers, this takes about a round trip, even after an outage: releases that failed during the
    /// outage are retried at once. With a store that does not answer, it ends after the longest `ttl` of the remaining
    /// leases, by which time they have ended by themselves, or with the session. An unpolled acquisition is given up
    /// after two to two and a half seconds. In a forked child it returns at once: the clean-up belongs to the parent.
    ///
    /// # Cancel safety
    /// Cancel safe; the clean-up continues.
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
