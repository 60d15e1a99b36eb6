//! Where locks come from.

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

/// A store, and defaults for the locks that are kept in it. Cheap to clone; all clones use the same connections.
///
/// It works from every tokio runtime of the process that has timers and I/O (`enable_all`), and outlives the one it was
/// made in.
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
    /// A manager of the store at `url`; the scheme chooses the store.
    ///
    /// | scheme | store | feature |
    /// |---|---|---|
    /// | `memory:`, `memory:name` | this process; one store per name | `memory` |
    /// | `redis://[user:password@]host[:port][/db]`, `rediss://…`, `redis+unix:///path` | one Redis server | `redis`, `tls` |
    /// | `zookeeper://[user:password@]host[:port],…[/chroot]`, `zookeeper+tls://…` | a ZooKeeper ensemble | `zookeeper`, `tls` |
    ///
    /// A store that cannot be reached, refuses the credentials or is not fit for locks says so here.
    ///
    /// # Errors
    /// [`InvalidOptions`](LockErrorKind::InvalidOptions) for a URL that is not understood,
    /// [`Unsupported`](LockErrorKind::Unsupported) for a store that is not compiled in or does not exist yet,
    /// [`Backend`](LockErrorKind::Backend) for a store that does not answer.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        let locks = Self::connect_lazy(url)?;
        locks.ping().await?;
        Ok(locks)
    }

    /// A manager of the store at `url`, which connects when it is first used: for a program that is to start while its store
    /// is down. See [what to do when the store is down at start](crate::docs::operation#the-store-is-down-at-start).
    ///
    /// The URL is read now. What [`connect`](Self::connect) would say of the store is an error of the first acquisition, and
    /// of each one until the store can be reached: no lock is granted without it.
    ///
    /// # Errors
    /// [`InvalidOptions`](LockErrorKind::InvalidOptions) for a URL that is not understood,
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

    /// Asks the store for a sign of life, and connects where that has not happened yet: for a readiness probe.
    ///
    /// # Errors
    /// What an acquisition would fail with now: [`Backend`](LockErrorKind::Backend) for a store that does not answer or
    /// refuses us, [`Unsupported`](LockErrorKind::Unsupported) for one that is not fit for locks.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ping(&self) -> Result<(), LockError> {
        if let Some(process) = self.engine.process() {
            process.check()?;
        }
        self.engine.backend.ping().await
    }

    /// A manager of `backend`, with limits of their own as [`Limits::default`] has them.
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

    /// The lock named `key`, with this manager's defaults. Nothing is asked of the store yet; a bad name is an
    /// error of the acquisition.
    #[must_use = "a lock does nothing until it is acquired"]
    pub fn lock(&self, key: impl IntoLockKey) -> Lock {
        Lock::new(Arc::clone(&self.engine), key.into_lock_key(&self.prefix), self.defaults)
    }

    /// The locks named by `keys`, to be held together; all of them or none. A bad name or none at all is an error of
    /// the acquisition.
    #[must_use = "locks do nothing until they are acquired"]
    pub fn all(&self, keys: impl IntoIterator<Item = impl IntoLockKey>) -> MultiLock {
        let keys = keys.into_iter().map(|key| key.into_lock_key(&self.prefix)).collect();
        MultiLock::new(Arc::clone(&self.engine), keys, self.defaults)
    }

    /// How long a lease lasts unless it is renewed; 30 s unless set, between 100 ms and 24 h.
    ///
    /// After a crash the lock is free at the latest after this time.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.defaults.ttl = ttl;
        self
    }

    /// How long [`Lock::acquire`] waits; 10 s unless set. Zero means one attempt.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.defaults.wait = WaitFor::AtMost(wait);
        self
    }

    /// Whether held locks are renewed; on unless switched off.
    #[must_use]
    pub fn auto_renew(mut self, auto_renew: bool) -> Self {
        self.defaults.auto_renew = auto_renew;
        self
    }

    /// How long a lock is held at most, however often it is renewed; 1 h unless set. `Duration::MAX` means no limit.
    ///
    /// It ends a hold whose holder is alive but stuck.
    #[must_use]
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.defaults.max_hold = max_hold;
        self
    }

    /// What a client is told to wait that finds a lock held: `Retry-After` in HTTP, `RetryInfo` in gRPC; 1 s unless set.
    ///
    /// It is advice for the length of a section. What the holder's lease has left, 30 s or so, says nothing about that
    /// while it is renewed; of a holder in this process that is known not to renew, the rest is told instead.
    #[must_use]
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.defaults.retry_after = retry_after;
        self
    }

    /// A manager of the same store whose locks carry this prefix in the store; the store's default unless set, which is `lock:` for all of this crate.
    ///
    /// With an empty prefix a lock has the very name that it is given, and shares it with other programs. Name a lock
    /// through one prefix only: `a` under `lock:` and `lock:a` under none exclude each other, but their waiters stand in
    /// two queues.
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

    /// A manager of the same store with other limits on waiters and held locks.
    ///
    /// Locks that were taken through the old one are not counted.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.engine = Engine::new(Arc::clone(&self.engine.backend), limits);
        self
    }

    /// What the store can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.engine.backend.capabilities()
    }

    /// Acquires nothing any more, and waits until everything that was dropped or left unclear is cleaned up.
    ///
    /// New and waiting acquisitions end with [`ShutDown`](LockErrorKind::ShutDown) and leave their places in the
    /// store's queue. Guards that are held stay valid and renewed, and releasing them still works. It affects all
    /// clones of the manager. What is kept for [`hold_at_least`](Lock::hold_at_least) is neither waited for nor
    /// released early: it ends at its time while the process lives, else with its lease.
    ///
    /// With a store that answers it takes about a round trip, also where the store was away before: what could not be
    /// released meanwhile is tried at once. With one that does not answer, it ends with the longest `ttl` of what is left,
    /// by which all leases have ended by themselves, or with the session. An acquisition whose future is kept
    /// and not polled is given up after two to two and a half seconds. In a forked child it returns at once: what is left
    /// belongs to the parent.
    ///
    /// # Cancel safety
    /// Cancel safe; the clean-up goes on.
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
