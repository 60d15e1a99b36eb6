//! A read-only handle to a held lock.

use std::{any::Any, fmt, future::Future, sync::Arc, time::Duration};

use crate::{
    FencingToken, LockError, LockKey, backend::Releasable, engine::hold::Turn, time::clock::Instant,
};

/// A read-only handle to a held lock. It is cheap to clone, cannot release the lock, and does not keep it held.
///
/// [`is_valid`](Self::is_valid) returns false once the lock has been lost or released. The lock counts as released when
/// its [`LockGuard`](crate::LockGuard) is released or dropped, or when the function or request that runs under the lock
/// ends.
#[derive(Clone)]
pub struct HeldLock {
    turn: Arc<Turn>,
}

impl HeldLock {
    pub(crate) fn of(turn: Arc<Turn>) -> Self {
        Self { turn }
    }

    /// Returns the name of the lock, without the manager's prefix.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        self.turn.hold.key()
    }

    /// Returns the fencing token, which is larger than that of every earlier holder. Send the token along with each
    /// write: a resource that remembers the largest token can then reject late writes from earlier holders.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.turn.token
    }

    /// Returns whether the lock can still be relied on at this moment.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.turn.is_valid(Instant::now())
    }

    /// Returns how much longer the lock can be relied on if it is not renewed again. The result is zero once the lock
    /// has been lost or released.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.turn.remaining(Instant::now())
    }

    /// Returns an error if the lock can no longer be relied on. Call this method before a step that cannot be undone.
    ///
    /// # Errors
    /// [`Lost`](crate::LockErrorKind::Lost), even if the lock was released rather than lost.
    pub fn ensure_valid(&self) -> Result<(), LockError> {
        if self.is_valid() { Ok(()) } else { Err(self.turn.loss()) }
    }

    /// Completes when the lock is lost or released.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let turn = Arc::clone(&self.turn);
        async move { turn.lost().await }
    }
}

impl HeldLock {
    pub(crate) fn turn(&self) -> &Arc<Turn> {
        &self.turn
    }

    /// Returns the store's part of the hold if it is a `T`, for the extras that a store offers in addition to locks.
    #[cfg_attr(
        not(any(feature = "postgres", feature = "zookeeper")),
        expect(dead_code, reason = "only some stores offer extras")
    )]
    pub(crate) fn in_store<T: Releasable>(&self) -> Option<&T> {
        let held: &dyn Any = self.turn.hold.in_store.as_releasable();
        held.downcast_ref()
    }
}

impl fmt::Debug for HeldLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, "HeldLock", &self.turn)
    }
}

/// Formats a hold for the `Debug` of the type `name`.
pub(super) fn show(f: &mut fmt::Formatter<'_>, name: &str, turn: &Turn) -> fmt::Result {
    f.debug_struct(name)
        .field("key", turn.hold.key())
        .field("fencing_token", &turn.token.get())
        .field("remaining", &turn.remaining(Instant::now()))
        .finish_non_exhaustive()
}
