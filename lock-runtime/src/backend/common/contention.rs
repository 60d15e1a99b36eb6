//! Whether others want a lock, in a store without a queue.

use std::time::Duration;

use crate::time::{backoff::between, clock::Instant};

/// Upper bound on the time that other clients are given to be notified and to ask.
const LONGEST_WAY: Duration = Duration::from_millis(200);
/// How long after the grant its answer shows whether others wait: clients may have come since then.
const KNOWN: Duration = Duration::from_millis(20);

/// What the answer to a request that was granted shows about other clients.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend) struct Contention {
    /// When the request was sent.
    pub(in crate::backend) asked_at: Instant,
    pub(in crate::backend) answered_at: Instant,
    /// Whether clients of this library were waiting then, or may have been.
    pub(in crate::backend) others_wait: bool,
}

impl Contention {
    /// Returns whether others wait, or may do so by now.
    pub(in crate::backend) fn is_likely(self) -> bool {
        self.others_wait || (self.answered_at + KNOWN).has_passed()
    }

    /// Returns how long other clients need to be notified and to ask: a random time within `bounds`, and that of the
    /// granted request. The first to reach the store gets the lock, so this process waits for that long before it asks
    /// again.
    pub(in crate::backend) fn head_start(self, bounds: [Duration; 2]) -> Duration {
        let way = self.answered_at.saturating_duration_since(self.asked_at);
        between(bounds) + way.min(LONGEST_WAY)
    }
}
