//! Whether other clients want a lock, in a store without a queue.

use std::time::Duration;

use crate::time::{backoff::between, clock::Instant};

/// Upper bound on the part of a [head start](Contention::head_start) that comes from the duration of the granted
/// request.
const MAX_REQUEST_SHARE: Duration = Duration::from_millis(200);
/// Time after a grant for which the evidence in its answer is current; later, other clients may have begun to wait.
const FRESH_FOR: Duration = Duration::from_millis(20);

/// The answer to a granted request, as evidence of other clients that wait for the lock.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend) struct Contention {
    /// When the request was sent.
    pub(in crate::backend) asked_at: Instant,
    pub(in crate::backend) answered_at: Instant,
    /// Whether other clients of this library were waiting, or may have been waiting, when the server answered.
    pub(in crate::backend) others_wait: bool,
}

impl Contention {
    /// Returns whether other clients wait for the lock, or may have begun to wait since the answer.
    pub(in crate::backend) fn is_likely(self) -> bool {
        self.others_wait || (self.answered_at + FRESH_FOR).has_passed()
    }

    /// Returns how long this process leaves the lock to other clients before it asks for the lock again: a random time
    /// within `bounds`, plus the duration of the granted request.
    ///
    /// In this time, another client can be notified of the release and ask for the lock; the first client to reach the
    /// store gets the lock.
    pub(in crate::backend) fn head_start(self, bounds: [Duration; 2]) -> Duration {
        let way = self.answered_at.saturating_duration_since(self.asked_at);
        between(bounds) + way.min(MAX_REQUEST_SHARE)
    }
}
