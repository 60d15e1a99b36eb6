//! The part of a hold that only the schedule of renewals reads and writes.

use std::sync::atomic::AtomicU64;

#[derive(Debug)]
pub(super) struct Scheduled {
    /// When it is renewed next.
    pub(super) renew_at: AtomicU64,
    /// When it is checked next: its entry in the schedule. 0 if it has none.
    pub(super) due: AtomicU64,
    /// Unique within the schedule.
    pub(super) id: AtomicU64,
    /// The end of a turn that was seen to pass while the turn was still in use.
    pub(super) end_seen: AtomicU64,
}

impl Scheduled {
    /// Creates the state without an entry and without a planned renewal.
    pub(super) const fn new() -> Self {
        Self {
            renew_at: AtomicU64::new(u64::MAX),
            due: AtomicU64::new(0),
            id: AtomicU64::new(0),
            end_seen: AtomicU64::new(0),
        }
    }
}
