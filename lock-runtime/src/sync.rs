//! Mutexes, notifications and futures for all modules.

#[cfg(feature = "redis")]
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
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

/// Locks `mutex`, even if a thread has panicked while it had locked the mutex: the data in the library's mutexes is
/// consistent between any two steps.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `data` for reading, like [`lock`].
#[cfg(feature = "redis")]
pub(crate) fn read<T: ?Sized>(data: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    data.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `data` for writing, like [`lock`].
#[cfg(feature = "redis")]
pub(crate) fn write<T: ?Sized>(data: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    data.write().unwrap_or_else(PoisonError::into_inner)
}

/// Data about many locks, in shards with a mutex each, so that threads that use different locks rarely contend for a
/// mutex.
///
/// The data of a lock is always in the same shard.
pub(crate) struct Sharded<T> {
    shards: [Shard<T>; SHARDS],
    hasher: RandomState,
}

const SHARDS: usize = 16;

/// A shard has its cache lines for itself. Otherwise, a thread that locks one shard would slow down the threads that
/// lock the shards next to it.
#[derive(Default)]
#[repr(align(128))]
struct Shard<T>(Mutex<T>);

impl<T> Sharded<T> {
    /// Locks the shard that has the lock with this name.
    pub(crate) fn of(&self, name: &str) -> MutexGuard<'_, T> {
        self.at(self.hasher.hash_one(name))
    }

    /// Locks the shard with this number modulo the number of shards.
    pub(crate) fn at(&self, number: u64) -> MutexGuard<'_, T> {
        lock(&self.shards[usize::try_from(number % SHARDS as u64).unwrap_or_default()].0)
    }

    /// Returns the numbers of all shards.
    pub(crate) fn numbers() -> Range<u64> {
        0..SHARDS as u64
    }

    /// Locks one shard after the other, not all at the same time.
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

/// Returns the result of `check` if it is `Some`. Otherwise, waits for the next notification and returns `None`. A
/// notification that comes after the check is not missed.
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
/// The futures of stores are only `Send`, but some service stacks require a response body that is `Sync`. The future is
/// polled only through `&mut`, so the mutex is never locked.
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
