//! What a store can do, and the modes in which its locks can be held.

use std::time::Duration;

/// What a store can do; plain data, so that tests and the parts above can select on it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// Other processes that use the same store see the same locks.
    pub shared_between_processes: bool,
    /// Waiters of different processes are served in the order in which they came.
    pub fair: bool,
    /// Holds live as long as a session with the store, whose timeout this is: after a crash they end with it, so a
    /// shorter `ttl` is refused.
    pub session_timeout: Option<Duration>,
    /// The modes in which its locks can be held; another is refused before the store is asked.
    pub modes: &'static [Mode],
    /// The prefix of the names of its locks, unless [`LockManager::with_prefix`](crate::LockManager::with_prefix) sets
    /// another.
    pub default_prefix: &'static str,
}

impl Capabilities {
    /// Of a store whose locks are exclusive and seen by this process only, without an order of waiting.
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

    /// Other processes see the same locks.
    #[must_use]
    pub const fn shared_between_processes(mut self) -> Self {
        self.shared_between_processes = true;
        self
    }

    /// Waiters are served in the order in which they came.
    #[must_use]
    pub const fn fair(mut self) -> Self {
        self.fair = true;
        self
    }

    /// Holds live as long as a session with this timeout.
    #[must_use]
    pub const fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = Some(timeout);
        self
    }

    /// Locks can be held in these modes.
    #[must_use]
    pub const fn modes(mut self, modes: &'static [Mode]) -> Self {
        self.modes = modes;
        self
    }

    /// The names of its locks begin with this unless another prefix is set.
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
