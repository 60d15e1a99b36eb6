//! A hold's place in the schedule of renewals, which alone reads and writes it.

use std::sync::atomic::AtomicU64;

#[derive(Debug)]
pub(super) struct Scheduled {
    /// When it is renewed next.
    pub(super) renew_at: AtomicU64,
    /// When it is looked at next, its place in the schedule; 0 when it has none.
    pub(super) due: AtomicU64,
    /// Unlike that of any other hold.
    pub(super) id: AtomicU64,
    /// The end of a turn that was seen to pass while the turn was being used.
    pub(super) end_seen: AtomicU64,
}

impl Scheduled {
    /// Without a place, and never to be renewed.
    pub(super) const fn new() -> Self {
        Self {
            renew_at: AtomicU64::new(u64::MAX),
            due: AtomicU64::new(0),
            id: AtomicU64::new(0),
            end_seen: AtomicU64::new(0),
        }
    }
}
