//! Whether tasks of this process wait for a held lock.

use std::sync::atomic::{AtomicU8, Ordering};

/// Whether tasks of this process wait for a held lock, and whether a future is to be notified when that changes.
///
/// The queue of the lock calls [`set`](Self::set), one call at a time. One atomic has both facts, so that either the
/// future sees the waiting task, or the queue sees that a future has to be notified.
#[derive(Debug)]
pub(super) struct Waiters(AtomicU8);

/// Tasks wait.
const PRESENT: u8 = 1;
/// A future has found no task waiting, and is to be notified of a change.
const AWAITED: u8 = 2;

impl Waiters {
    pub(super) const fn none() -> Self {
        Self(AtomicU8::new(0))
    }

    /// Records whether tasks wait. Returns whether the caller has to notify the futures that await a change.
    pub(super) fn set(&self, present: bool) -> bool {
        let state = if present { PRESENT } else { 0 };
        // The usual case costs one load: no future awaits a change, and there is none.
        self.0.load(Ordering::Relaxed) != state && self.0.swap(state, Ordering::AcqRel) & AWAITED != 0
    }

    /// Returns whether tasks wait. If none does, the next change is to be notified.
    pub(super) fn check(&self) -> bool {
        self.0.fetch_or(AWAITED, Ordering::AcqRel) & PRESENT != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_notified_only_if_a_future_has_asked_before() {
        let waiters = Waiters::none();
        assert!(!waiters.set(true), "no future has asked");
        assert!(waiters.check());
        assert!(waiters.set(false), "a future has asked");
        assert!(!waiters.set(true), "and not again since");
        assert!(!waiters.set(false));
        assert!(!waiters.check());
        assert!(waiters.set(true));
        assert!(waiters.check());
    }
}
