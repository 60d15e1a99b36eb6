//! The state of a hold that the renewals need: the next check and renewal, the reported losses, and the last results.

use std::sync::atomic::{AtomicU8, AtomicU64};

/// The values of [`Scheduled::renewal`].
pub(super) const NOT_SENT: u8 = 0;
pub(super) const UNANSWERED: u8 = 1;
/// A renewal has failed; the hold has the error.
pub(super) const FAILED: u8 = 2;

#[derive(Debug)]
pub(super) struct Scheduled {
    /// When the hold is renewed next, in nanoseconds.
    pub(super) renew_at: AtomicU64,
    /// When the hold is checked next, in nanoseconds: the time of its entry in the schedule; 0 without an entry.
    pub(super) due: AtomicU64,
    /// Unique within the schedule.
    pub(super) id: AtomicU64,
    /// The end of the latest turn whose loss was reported, in nanoseconds, so that each loss is reported only once.
    ///
    /// After the end of such a turn, only the deadline of the hold is left to check.
    pub(super) end_seen: AtomicU64,
    /// The state of the renewals since the last success.
    pub(super) renewal: AtomicU8,
}

impl Scheduled {
    /// Creates the state without an entry and without a planned renewal.
    pub(super) const fn new() -> Self {
        Self {
            renew_at: AtomicU64::new(u64::MAX),
            due: AtomicU64::new(0),
            id: AtomicU64::new(0),
            end_seen: AtomicU64::new(0),
            renewal: AtomicU8::new(NOT_SENT),
        }
    }
}
