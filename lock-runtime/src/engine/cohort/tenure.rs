//! How often, and for how long, a lease is passed on inside this process.

use std::time::Duration;

use crate::time::clock::Instant;

/// Bounds while others are known to wait in the store.
const MAX_HAND_OVERS: u32 = 64;
const MAX_TENURE: Duration = Duration::from_millis(5);
/// Bound while no waiter is known in the store: the notice that there is one may have been lost.
pub(super) const MAX_TENURE_ALONE: Duration = Duration::from_secs(1);

/// The time in which a process has a lease, from its grant on.
#[derive(Debug)]
pub(super) struct Tenure {
    since: Instant,
    hand_overs: u32,
}

impl Tenure {
    pub(super) fn begin(now: Instant) -> Self {
        Self { since: now, hand_overs: 0 }
    }

    /// Whether the lease may be passed on at `now`. Whether others are known to wait in the store is asked only where it
    /// matters.
    pub(super) fn may_go_on(&self, now: Instant, others_wait: impl FnOnce() -> bool) -> bool {
        let length = now.saturating_duration_since(self.since);
        let is_spent = self.hand_overs >= MAX_HAND_OVERS || length >= MAX_TENURE;
        length < MAX_TENURE_ALONE && !(is_spent && others_wait())
    }

    /// The lease was passed on.
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
