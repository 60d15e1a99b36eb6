//! Mutexes, notifications and futures for all modules.

use std::{
    fmt,
    future::Future,
    hash::BuildHasher,
    ops::Range,
    pin::{Pin, pin},
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use tokio::sync::Notify;

use crate::hash::RandomState;

/// Locks `mutex`, also after a panic under it: the data in our mutexes is consistent between any two steps.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Data about many locks, in parts with a mutex each, so that threads which use different locks rarely meet.
///
/// A lock is always in the same part.
pub(crate) struct Sharded<T> {
    shards: [Shard<T>; SHARDS],
    hasher: RandomState,
}

const SHARDS: usize = 16;

/// Alone in its cache lines; otherwise a thread that locks one part slows down the threads that lock its neighbours.
#[derive(Default)]
#[repr(align(128))]
struct Shard<T>(Mutex<T>);

impl<T> Sharded<T> {
    /// Locks the part with the lock of this name.
    pub(crate) fn of(&self, name: &str) -> MutexGuard<'_, T> {
        self.at(self.hasher.hash_one(name))
    }

    /// Locks the part with this number; the parts are numbered round and round.
    pub(crate) fn at(&self, number: u64) -> MutexGuard<'_, T> {
        lock(&self.shards[usize::try_from(number % SHARDS as u64).unwrap_or_default()].0)
    }

    /// Returns the numbers of all parts.
    pub(crate) fn numbers() -> Range<u64> {
        0..SHARDS as u64
    }

    /// Locks each part in turn; they are not locked together.
    pub(crate) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.shards.iter().map(|shard| lock(&shard.0))
    }
}

impl<T: Default> Default for Sharded<T> {
    fn default() -> Self {
        Self { shards: Default::default(), hasher: RandomState::default() }
    }
}

impl<T> fmt::Debug for Sharded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sharded")
    }
}

/// Returns what `check` finds, or `None` after the next notification. One that comes after the check is not missed.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn check_or_wait<T>(notify: &Notify, check: impl FnOnce() -> Option<T>) -> Option<T> {
    let mut notified = pin!(notify.notified());
    notified.as_mut().enable();
    match check() {
        None => {
            notified.await;
            None
        }
        found => found,
    }
}

/// A boxed future that keeps its owner `Sync`.
///
/// The futures of stores are only `Send`, and a response body that is not `Sync` does not fit into every stack. The
/// future is polled through `&mut` alone, so the mutex is never locked.
pub struct SyncFuture<T>(Mutex<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T> SyncFuture<T> {
    /// Wraps a future.
    #[must_use]
    pub fn new(future: Pin<Box<dyn Future<Output = T> + Send>>) -> Self {
        Self(Mutex::new(future))
    }

    /// Polls the future.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut().poll(cx)
    }
}

impl<T> fmt::Debug for SyncFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SyncFuture")
    }
}
