//! A read-only handle to a held lock.

use std::{
    any::Any,
    fmt,
    future::Future,
    sync::Arc,
    time::{Duration, SystemTime},
};

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

    /// Returns the beginning of the period for which the lock was acquired, if the lock has the option
    /// [`once_per`](crate::Lock::once_per). No other acquisition of this lock with the same length has the same period (a
    /// guard that re-enters the lock shares it), so the body can use it as an idempotency key, or to find out what there is
    /// to do.
    #[must_use]
    pub fn period(&self) -> Option<SystemTime> {
        self.turn.period.get().copied()
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

    /// Completes when another acquisition is known to wait for the lock, so that a long job can stop at a good place and
    /// release the lock early. The holder decides whether to give way: the lock is neither lost nor limited in time.
    ///
    /// Acquisitions through the same manager and its clones are seen at once. Other clients are seen if the store
    /// [tells of waiters](crate::backend::Capabilities::tells_of_waiters), usually within a second; the page of each
    /// store says how. (With a store that has a server, this needs a tokio runtime with timers and I/O.) An acquisition
    /// that began to wait before this call counts, too. A single attempt ([`try_acquire`](crate::Lock::try_acquire))
    /// waits for nothing, and does not count. When the future completes, the waiter may already have given up.
    ///
    /// The future never completes once the lock has been lost or released, so await it together with
    /// [`lost`](Self::lost), or within [`LockGuard::run`](crate::LockGuard::run). Nothing is sent to the store before the
    /// future is polled.
    ///
    /// # Cancel safety
    /// Cancel safe. But if the store has to be asked, a new future may wait half a second before it asks, so a loop that
    /// checks between the parts of a job should create one future and poll it by reference, as in the example.
    ///
    /// # Example
    /// ```
    /// use std::pin::pin;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// # let locks = lock_runtime::LockManager::connect("memory:wanted").await?;
    /// # async fn next_page(page: u32) { tokio::task::yield_now().await; }
    /// let guard = locks.lock("report").acquire().await?;
    /// # let other = locks.lock("report");
    /// # let other = tokio::spawn(async move { other.acquire().await });
    /// let held = guard.held();
    /// let pages_done = guard
    ///     .run(async move {
    ///         let mut wanted = pin!(held.wanted());
    ///         for page in 0..1_000 {
    ///             next_page(page).await;
    ///             // Between two pages, the job can stop.
    ///             let is_wanted = tokio::select! {
    ///                 biased;
    ///                 () = &mut wanted => true,
    ///                 () = std::future::ready(()) => false,
    ///             };
    ///             if is_wanted {
    ///                 return page + 1;
    ///             }
    ///         }
    ///         1_000
    ///     })
    ///     .await?;
    /// # assert!(pages_done < 1_000);
    /// # other.await.unwrap()?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wanted(&self) -> impl Future<Output = ()> + Send + use<> {
        let turn = Arc::clone(&self.turn);
        async move { turn.wanted().await }
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
