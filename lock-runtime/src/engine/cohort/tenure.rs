//! The bounds on the tenure of a lease: on the number of hand-overs inside this process, and on the time from the grant
//! to the last hand-over.

use std::time::Duration;

use crate::{
    backend::{HandOver, Permission},
    time::clock::Instant,
};

/// Upper bound on the hand-overs of one lease while other clients wait in the store, or must be assumed to wait there.
const MAX_HAND_OVERS: u32 = 64;
/// Upper bound on the time from a grant to the last hand-over of its lease while other clients wait in the store, or
/// must be assumed to wait there.
const MAX_TENURE: Duration = Duration::from_millis(5);
/// Upper bound on the time from a grant to the last hand-over of its lease while no other client is known to wait in
/// the store: the contention notice may have been lost.
pub(super) const MAX_TENURE_ALONE: Duration = Duration::from_secs(1);

/// The turns of one lease in this process, from the grant on.
#[derive(Debug)]
pub(super) struct Tenure {
    since: Instant,
    hand_overs: u32,
}

impl Tenure {
    pub(super) fn begin(now: Instant) -> Self {
        Self { since: now, hand_overs: 0 }
    }

    /// Returns whether the lease may be handed over at `now`. `store` is the store's answer to the same question.
    pub(super) fn may_go_on(&self, now: Instant, store: HandOver) -> bool {
        let length = now.saturating_duration_since(self.since);
        match store.permission {
            Permission::Refused => false,
            Permission::Uncontended => length < MAX_TENURE_ALONE,
            // If the store demands a pause (`keep_off`) before this process asks for the lock again, the number of
            // hand-overs is not limited, only the time: the pause takes longer than many hand-overs.
            Permission::Contended => {
                length < MAX_TENURE && (self.hand_overs < MAX_HAND_OVERS || !store.keep_off.is_zero())
            }
        }
    }

    /// Counts a hand-over of the lease.
    pub(super) fn handed_over(&mut self) {
        self.hand_overs += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNCONTENDED: HandOver = HandOver::uncontended();
    const CONTENDED: HandOver = HandOver::contended();

    #[test]
    fn a_tenure_ends_by_hand_overs_or_time_where_others_wait_and_by_time_alone_where_not() {
        let began = Instant::now();
        let mut tenure = Tenure::begin(began);
        let just_before = |bound| began + Duration::saturating_sub(bound, Duration::from_nanos(1));
        assert!(tenure.may_go_on(just_before(MAX_TENURE), CONTENDED));
        assert!(!tenure.may_go_on(began + MAX_TENURE, CONTENDED));
        assert!(tenure.may_go_on(just_before(MAX_TENURE_ALONE), UNCONTENDED));
        assert!(!tenure.may_go_on(began + MAX_TENURE_ALONE, UNCONTENDED));
        for _ in 1..MAX_HAND_OVERS {
            tenure.handed_over();
        }
        assert!(tenure.may_go_on(began, CONTENDED));
        tenure.handed_over();
        assert!(!tenure.may_go_on(began, CONTENDED));
        assert!(tenure.may_go_on(began, UNCONTENDED));
    }

    #[test]
    fn the_number_of_hand_overs_does_not_count_where_the_process_keeps_off_the_lock_afterwards() {
        let began = Instant::now();
        let tenure = Tenure { since: began, hand_overs: MAX_HAND_OVERS };
        let store = CONTENDED.keep_off(Duration::from_nanos(1));
        assert!(tenure.may_go_on(began, store));
        assert!(!tenure.may_go_on(began + MAX_TENURE, store));
    }

    #[test]
    fn a_lease_that_may_not_be_handed_over_has_one_turn() {
        let began = Instant::now();
        assert!(!Tenure::begin(began).may_go_on(began, HandOver::refused()));
    }
}
