//! The capabilities of a store, and the modes in which its locks can be held.

use std::time::Duration;

/// The capabilities of a store, as plain data that the library and tests can read.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// Whether locks are exclusive among all processes that use the store, not only among the tasks of this process.
    pub shared_between_processes: bool,
    /// Whether waiters of different processes are served in the order in which they began to wait.
    pub fair: bool,
    /// The timeout of the session with the store, if the store has session locks; otherwise `None`. After a crash, a
    /// session lock stays held until the session has timed out. The library therefore refuses a `ttl` shorter than this
    /// timeout: the lock would not become free within the `ttl`.
    pub session_timeout: Option<Duration>,
    /// The longest `ttl` of the store's leases, if it bounds them. A manager's default `ttl` is never longer; the store
    /// itself refuses a longer one that a lock asks for.
    pub longest_ttl: Option<Duration>,
    /// The modes in which locks can be held. The library refuses other modes before it asks the store.
    pub modes: &'static [Mode],
    /// The default prefix for lock names. [`LockManager::with_prefix`](crate::LockManager::with_prefix) overrides it.
    pub default_prefix: &'static str,
}

impl Capabilities {
    /// Describes a store whose locks are exclusive and visible only to this process, and whose waiters are served in no
    /// particular order.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            shared_between_processes: false,
            fair: false,
            session_timeout: None,
            longest_ttl: None,
            modes: &[Mode::Exclusive],
            default_prefix: "lock:",
        }
    }

    /// Declares that locks are exclusive among all processes that use the store, not only among the tasks of this
    /// process.
    #[must_use]
    pub const fn shared_between_processes(mut self) -> Self {
        self.shared_between_processes = true;
        self
    }

    /// Declares that waiters of different processes are served in the order in which they began to wait.
    #[must_use]
    pub const fn fair(mut self) -> Self {
        self.fair = true;
        self
    }

    /// Declares that the store has session locks, which last as long as a session with this timeout.
    #[must_use]
    pub const fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = Some(timeout);
        self
    }

    /// Declares that no lease of the store lasts longer than this.
    #[must_use]
    pub const fn longest_ttl(mut self, ttl: Duration) -> Self {
        self.longest_ttl = Some(ttl);
        self
    }

    /// Sets the modes in which locks can be held.
    #[must_use]
    pub const fn modes(mut self, modes: &'static [Mode]) -> Self {
        self.modes = modes;
        self
    }

    /// Sets the default prefix for lock names.
    #[must_use]
    pub const fn default_prefix(mut self, prefix: &'static str) -> Self {
        self.default_prefix = prefix;
        self
    }
}

impl Default for Capabilities {
    fn default() -> Self {
        Self::new()
    }
}

/// How many holders a lock may have at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// One holder.
    Exclusive,
}
