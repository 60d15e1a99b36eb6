//! How often, and for how long, a lease is handed over inside this process.

use std::time::Duration;

use crate::time::clock::Instant;

/// Bounds while other clients are known to wait in the store.
const MAX_HAND_OVERS: u32 = 64;
const MAX_TENURE: Duration = Duration::from_millis(5);
/// Bound while no other client is known to wait in the store: the contention notice may have been lost.
pub(super) const MAX_TENURE_ALONE: Duration = Duration::from_secs(1);

/// The turns of this process in a row, from the grant of the lease.
#[derive(Debug)]
pub(super) struct Tenure {
    since: Instant,
    hand_overs: u32,
}

impl Tenure {
    pub(super) fn begin(now: Instant) -> Self {
        Self { since: now, hand_overs: 0 }
    }

    /// Returns whether the lease may be handed over at `now`.
    ///
    /// Calls `others_wait` only if it matters whether other clients are known to wait in the store.
    pub(super) fn may_go_on(&self, now: Instant, others_wait: impl FnOnce() -> bool) -> bool {
        let length = now.saturating_duration_since(self.since);
        let is_spent = self.hand_overs >= MAX_HAND_OVERS || length >= MAX_TENURE;
        length < MAX_TENURE_ALONE && !(is_spent && others_wait())
    }

    /// Counts a hand-over of the lease.
    pub(super) fn handed_over(&mut self) {
        self.hand_overs += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenure_ends_by_hand_overs_or_time_where_others_wait_and_by_time_alone_where_not() {
        let began = Instant::now();
        let mut tenure = Tenure::begin(began);
        let just_before = |bound| began + Duration::saturating_sub(bound, Duration::from_nanos(1));
        assert!(tenure.may_go_on(just_before(MAX_TENURE), || panic!("it is not asked before its bound")));
        assert!(!tenure.may_go_on(began + MAX_TENURE, || true));
        assert!(tenure.may_go_on(just_before(MAX_TENURE_ALONE), || false));
        assert!(!tenure.may_go_on(began + MAX_TENURE_ALONE, || false));
        for _ in 1..MAX_HAND_OVERS {
            tenure.handed_over();
        }
        assert!(tenure.may_go_on(began, || true));
        tenure.handed_over();
        assert!(!tenure.may_go_on(began, || true));
        assert!(tenure.may_go_on(began, || false));
    }
}
