//! What a store can do, and the modes in which its locks can be held.

use std::time::Duration;

/// What a store can do, as plain data on which tests and the code above the stores can branch.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// Other processes that use the same store see the same locks.
    pub shared_between_processes: bool,
    /// Waiters of different processes are served in the order in which they came.
    pub fair: bool,
    /// The timeout of the session with the store, if holds last as long as a session. After a crash they end with it,
    /// so a shorter `ttl` is refused.
    pub session_timeout: Option<Duration>,
    /// The modes in which its locks can be held; other modes are refused before the store is asked.
    pub modes: &'static [Mode],
    /// The prefix of the names of its locks, unless [`LockManager::with_prefix`](crate::LockManager::with_prefix) sets
    /// another.
    pub default_prefix: &'static str,
}

impl Capabilities {
    /// Describes a store whose locks are exclusive and seen only by this process, with no order among the waiters.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            shared_between_processes: false,
            fair: false,
            session_timeout: None,
            modes: &[Mode::Exclusive],
            default_prefix: "lock:",
        }
    }

    /// Declares that other processes see the same locks.
    #[must_use]
    pub const fn shared_between_processes(mut self) -> Self {
        self.shared_between_processes = true;
        self
    }

    /// Declares that waiters are served in the order in which they came.
    #[must_use]
    pub const fn fair(mut self) -> Self {
        self.fair = true;
        self
    }

    /// Declares that holds last as long as a session with this timeout.
    #[must_use]
    pub const fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = Some(timeout);
        self
    }

    /// Sets the modes in which locks can be held.
    #[must_use]
    pub const fn modes(mut self, modes: &'static [Mode]) -> Self {
        self.modes = modes;
        self
    }

    /// Sets the default prefix of the names of its locks.
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

/// How many holders of one lock may coexist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// One.
    Exclusive,
}
