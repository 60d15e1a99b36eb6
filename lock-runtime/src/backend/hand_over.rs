//! Whether a lease may be handed over within the process.

use std::time::Duration;

/// A store's decision when a holder leaves while other callers in the process wait: whether the library may hand the
/// lease over to the next caller, and if not, how long the process keeps off the lock.
///
/// The result of [`Lease::may_hand_over`](crate::backend::Lease::may_hand_over).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandOver {
    pub(crate) permission: Permission,
    pub(crate) keep_off: Duration,
}

/// How often a lease may be handed over. `engine::cohort` applies the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    Uncontended,
    Contended,
    Refused,
}

impl HandOver {
    /// No other client is known to wait for the lock. The lease may be handed over until a second has passed since the
    /// grant, because a notice that another client waits may have been lost.
    #[must_use]
    pub const fn uncontended() -> Self {
        Self { permission: Permission::Uncontended, keep_off: Duration::ZERO }
    }

    /// Another client is waiting, or must be assumed to be waiting. The lease may be handed over at most 64 times, and
    /// only until 5 ms have passed since the grant. The number is not limited if the process then
    /// [keeps off](Self::keep_off) the lock, because this pause takes longer than many hand-overs.
    #[must_use]
    pub const fn contended() -> Self {
        Self { permission: Permission::Contended, keep_off: Duration::ZERO }
    }

    /// The lease must not be handed over: each holder acquires the lock from the store.
    ///
    /// This is for a store whose grants are numbered together with those of other clients, and whose tokens are made
    /// with [`FencingToken::from_number`](crate::FencingToken::from_number): there is no number left for the token of a
    /// hand-over.
    #[must_use]
    pub const fn refused() -> Self {
        Self { permission: Permission::Refused, keep_off: Duration::ZERO }
    }

    /// Sets how long the process waits, if the lease is not handed over, before it asks for the lock again for its own
    /// callers. By default, the process asks at once.
    ///
    /// The pause must not be zero if other clients wait without a place in a queue and only check the lock from time to
    /// time, because such clients need time to find the lock free.
    #[must_use]
    pub const fn keep_off(mut self, pause: Duration) -> Self {
        self.keep_off = pause;
        self
    }
}
