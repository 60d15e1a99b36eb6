//! The capabilities of a store, and the modes in which its locks can be held.

use std::time::Duration;

/// The capabilities of a store, as plain data that the library and tests can read.
///
/// ```
/// use std::time::Duration;
///
/// use lock_runtime::backend::{Capabilities, Mode};
///
/// let can = Capabilities::new().shared_between_processes().with_session_timeout(Duration::from_secs(10));
/// assert!(can.is_shared_between_processes() && !can.is_fair());
/// assert_eq!(can.session_timeout(), Some(Duration::from_secs(10)));
/// assert!(can.modes().allows(Mode::Exclusive));
/// ```
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an ability, and they can be combined freely")]
pub struct Capabilities {
    shared_between_processes: bool,
    fair: bool,
    tells_of_waiters: bool,
    shows_locks: bool,
    revokes: bool,
    session_timeout: Option<Duration>,
    longest_ttl: Option<Duration>,
    modes: Modes,
    default_prefix: &'static str,
    name: &'static str,
}

impl Capabilities {
    /// Describes a store whose locks are exclusive and visible only to this process, whose waiters are served in no
    /// particular order, and whose holders cannot learn that other clients wait.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            shared_between_processes: false,
            fair: false,
            tells_of_waiters: false,
            shows_locks: false,
            revokes: false,
            session_timeout: None,
            longest_ttl: None,
            modes: Modes::exclusive(),
            default_prefix: "lock:",
            name: "other",
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

    /// Declares that a holder can learn that another client waits for its lock: the store implements
    /// [`Lease::wanted`](super::Lease::wanted) or [`Session::wanted`](super::Session::wanted).
    #[must_use]
    pub const fn telling_of_waiters(mut self) -> Self {
        self.tells_of_waiters = true;
        self
    }

    /// Declares that the store shows its locks to operators: it implements [`Operate`](super::Operate).
    #[must_use]
    pub const fn showing_locks(mut self) -> Self {
        self.shows_locks = true;
        self
    }

    /// Declares that a grant can be [revoked](super::Operate::revoke) without force.
    #[must_use]
    pub const fn revoking(mut self) -> Self {
        self.revokes = true;
        self
    }

    /// Declares that the store has session locks, which last as long as a session with this timeout.
    #[must_use]
    pub const fn with_session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = Some(timeout);
        self
    }

    /// Declares that no lease of the store lasts longer than `ttl`.
    #[must_use]
    pub const fn with_longest_ttl(mut self, ttl: Duration) -> Self {
        self.longest_ttl = Some(ttl);
        self
    }

    /// Sets the modes in which locks can be held.
    #[must_use]
    pub const fn with_modes(mut self, modes: Modes) -> Self {
        self.modes = modes;
        self
    }

    /// Sets the default prefix for lock names.
    #[must_use]
    pub const fn with_default_prefix(mut self, prefix: &'static str) -> Self {
        self.default_prefix = prefix;
        self
    }

    /// Sets the name of the kind of store, such as `redis`, for metrics and traces; `other` by default.
    #[must_use]
    pub const fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Returns whether locks are exclusive among all processes that use the store, not only among the tasks of this
    /// process.
    #[must_use]
    pub const fn is_shared_between_processes(&self) -> bool {
        self.shared_between_processes
    }

    /// Returns whether waiters of different processes are served in the order in which they began to wait.
    #[must_use]
    pub const fn is_fair(&self) -> bool {
        self.fair
    }

    /// Returns whether a holder can learn that another client waits for its lock. If not,
    /// [`HeldLock::wanted`](crate::HeldLock::wanted) completes only for waiters of the same manager and its clones.
    #[must_use]
    pub const fn tells_of_waiters(&self) -> bool {
        self.tells_of_waiters
    }

    /// Returns whether the store shows its locks to operators ([`LockManager::inspect`](crate::LockManager::inspect) and
    /// [`scan`](crate::LockManager::scan)), and can free them [by force](crate::LockManager::revoke_by_force).
    #[must_use]
    pub const fn shows_locks(&self) -> bool {
        self.shows_locks
    }

    /// Returns whether a grant can be [revoked](crate::LockManager::revoke) without force.
    #[must_use]
    pub const fn revokes(&self) -> bool {
        self.revokes
    }

    /// Returns the timeout of the session with the store, if the store has session locks; otherwise `None`. After a
    /// crash, a session lock stays held until the session has timed out. The library therefore refuses a `ttl` shorter
    /// than this timeout: the lock would not become free within the `ttl`.
    #[must_use]
    pub const fn session_timeout(&self) -> Option<Duration> {
        self.session_timeout
    }

    /// Returns the longest `ttl` of the store's leases, or `None` if the store does not limit the `ttl`. A manager's
    /// default `ttl` is never longer. The store itself refuses a lock with a longer `ttl`.
    #[must_use]
    pub const fn longest_ttl(&self) -> Option<Duration> {
        self.longest_ttl
    }

    /// Returns the modes in which locks can be held. The library refuses other modes before it asks the store.
    #[must_use]
    pub const fn modes(&self) -> Modes {
        self.modes
    }

    /// Returns the default prefix for lock names. [`LockManager::with_prefix`](crate::LockManager::with_prefix)
    /// overrides this prefix.
    #[must_use]
    pub const fn default_prefix(&self) -> &'static str {
        self.default_prefix
    }

    /// Returns the name of the kind of store, such as `redis`. Metrics and traces state the name in the label `store`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl Default for Capabilities {
    fn default() -> Self {
        Self::new()
    }
}

/// The modes in which the locks of a store can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    exclusive: bool,
    shared: bool,
    permits: bool,
}

impl Modes {
    /// Declares exclusive locks only. Every store has exclusive locks.
    #[must_use]
    pub const fn exclusive() -> Self {
        Self { exclusive: true, shared: false, permits: false }
    }

    /// Declares shared locks in addition: any number of callers may hold the lock together, as long as no caller holds
    /// it exclusively.
    ///
    /// No [`Mode`] asks for shared locks yet, so the declaration has no effect in this version.
    #[must_use]
    pub const fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// Declares locks with permits (semaphores) in addition: a given number of callers may hold the lock together.
    ///
    /// No [`Mode`] asks for permits yet, so the declaration has no effect in this version.
    #[must_use]
    pub const fn permits(mut self) -> Self {
        self.permits = true;
        self
    }

    /// The modes of a store that refuses every lock.
    #[cfg(test)]
    pub(crate) const fn none() -> Self {
        Self { exclusive: false, shared: false, permits: false }
    }

    /// Returns whether locks can be held in this mode.
    #[must_use]
    pub const fn allows(self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => self.exclusive,
        }
    }
}

/// How many holders a lock may have at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// One holder.
    Exclusive,
}

impl Mode {
    /// Returns the name of the mode, for metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_allowed_only_if_it_is_declared() {
        assert!(!Modes::none().allows(Mode::Exclusive));
        assert!(Modes::exclusive().allows(Mode::Exclusive));
        let more = Modes::none().shared().permits();
        assert!(!more.allows(Mode::Exclusive), "allowed by the declaration of other modes");
    }

    #[test]
    fn each_mode_is_declared_by_itself() {
        let (exclusive, all) = (Modes::exclusive(), Modes::exclusive().shared().permits());
        assert_eq!(all, Modes::exclusive().permits().shared());
        for (one, other) in [
            (exclusive, exclusive.shared()),
            (exclusive, exclusive.permits()),
            (exclusive.shared(), exclusive.permits()),
            (exclusive.shared(), all),
            (exclusive.permits(), all),
        ] {
            assert_ne!(one, other);
        }
    }
}
