//! The removal of marks: of periods whose lock was not acquired, and of attempts to set a mark that are in doubt.
//!
//! A mark may last for weeks. A removal is therefore repeated for long, but a shutdown waits for it no longer than for the
//! release of a lock.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    LockError, LockKey,
    backend::{BoxFuture, Releasable, Released},
    engine::in_flight::{InFlight, InFlightGuard},
    hash::HashMap,
    sync::lock,
    time::clock::{self, Instant},
};

/// The marks whose removal has begun and is not confirmed.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// For each stored name, the number of removals.
    by_name: Mutex<HashMap<Box<str>, usize>>,
    pending: Arc<InFlight>,
    /// Until when a shutdown waits for these removals, in nanoseconds.
    awaited_until: AtomicU64,
}

impl Marks {
    /// Records that the removal of `mark` begins, for which a shutdown waits until `awaited_until` at most.
    pub(super) fn begin(
        self: &Arc<Self>,
        mark: Arc<dyn Releasable>,
        awaited_until: Instant,
    ) -> (Arc<dyn Releasable>, InFlightGuard) {
        self.awaited_until.fetch_max(awaited_until.as_nanos(), Ordering::SeqCst);
        *lock(&self.by_name).entry(mark.key().stored().into()).or_default() += 1;
        let removal = Removal { mark, marks: Arc::clone(self) };
        (Arc::new(removal), InFlightGuard::new(Arc::clone(&self.pending)))
    }

    /// Returns whether a mark with this stored name is being removed.
    pub(super) fn has(&self, stored: &str) -> bool {
        lock(&self.by_name).contains_key(stored)
    }

    /// Completes when nothing is left to remove, or a shutdown need not wait any longer.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn drained(&self) {
        let awaited_until = Instant::from_nanos(self.awaited_until.load(Ordering::SeqCst));
        tokio::select! {
            biased;
            () = self.pending.drained() => {}
            () = clock::sleep_until(awaited_until) => {}
        }
    }
}

/// A removal, which is recorded by the name of its mark until this value is dropped.
#[derive(Debug)]
struct Removal {
    mark: Arc<dyn Releasable>,
    marks: Arc<Marks>,
}

impl Drop for Removal {
    fn drop(&mut self) {
        let mut by_name = lock(&self.marks.by_name);
        let name = self.mark.key().stored();
        if let Some(count) = by_name.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                by_name.remove(name);
            }
        }
    }
}

impl Releasable for Removal {
    fn key(&self) -> &LockKey {
        self.mark.key()
    }

    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>> {
        self.mark.release()
    }
}
