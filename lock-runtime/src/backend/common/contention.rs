//! Whether other clients want a lock, in a store without a queue.

use std::time::Duration;

use crate::time::{backoff::between, clock::Instant};

/// Upper bound on the part of a head start that the duration of the granted request determines.
const MAX_REQUEST_SHARE: Duration = Duration::from_millis(200);
/// Time after a grant during which the answer tells whether other clients wait; later, other clients may have come.
const FRESH_FOR: Duration = Duration::from_millis(20);

/// The evidence about other clients in the answer to a granted request.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend) struct Contention {
    /// When the request was sent.
    pub(in crate::backend) asked_at: Instant,
    pub(in crate::backend) answered_at: Instant,
    /// Whether other clients of this library were waiting when the answer was given, or may have been waiting.
    pub(in crate::backend) others_wait: bool,
}

impl Contention {
    /// Returns whether others wait, or may wait by now.
    pub(in crate::backend) fn is_likely(self) -> bool {
        self.others_wait || (self.answered_at + FRESH_FOR).has_passed()
    }

    /// Returns how long other clients need to be notified and to ask: a random time within `bounds`, plus the duration
    /// of the granted request. The first client to reach the store gets the lock, so this process waits for the whole
    /// head start before it asks again.
    pub(in crate::backend) fn head_start(self, bounds: [Duration; 2]) -> Duration {
        let way = self.answered_at.saturating_duration_since(self.asked_at);
        between(bounds) + way.min(MAX_REQUEST_SHARE)
    }
}
