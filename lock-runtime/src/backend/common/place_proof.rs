//! The time of a grant that reaches a waiter by a message instead of an answer.
//!
//! A message may be delayed for any length of time, so the time of its arrival says nothing about the time of the
//! grant. Instead, the lease is counted from the latest answered request that found the waiter's place in the queue.
//! Each grant has a number. The grant was made after that request if its number is larger than the number of the last
//! grant that the request found.
//!
//! The rule is model-checked for each store with such grants (`tests/model`). Without the rule, two clients can believe
//! that they hold the lock.

use std::time::Duration;

use crate::{
    backend::Acquire,
    time::{
        clock::Instant,
        deadline::{min_validity, valid_until},
    },
};

/// The latest answered request that found the waiter's place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend) struct PlaceProof {
    /// When the request was sent.
    pub(in crate::backend) sent: Instant,
    /// A bound on the numbers of earlier grants: no grant of this lock that was made before the request was executed
    /// has a larger number. A grant with a larger number was therefore made after the request.
    pub(in crate::backend) last: u64,
}

impl PlaceProof {
    /// Returns the deadline of a grant with this number and this lease; `None` if the grant is older than the proof.
    /// The hold of such a grant has ended, because the waiter was in the queue again when the proof was made.
    pub(in crate::backend) fn deadline(&self, number: u64, lease: Duration) -> Option<Instant> {
        (number > self.last).then(|| valid_until(self.sent, lease))
    }
}

/// Returns whether the caller can use a grant by message that is valid until `deadline`.
///
/// The lease of such a grant may be shorter than the `ttl`, so a caller without renewal cannot use the grant.
pub(in crate::backend) fn is_usable(request: &Acquire, deadline: Instant) -> bool {
    request.auto_renew && Instant::now() + min_validity(request.ttl) <= deadline
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(2);

    #[test]
    fn a_grant_is_dated_by_the_request_that_proved_the_place_and_never_by_its_arrival() {
        let proof = PlaceProof { sent: Instant::from_nanos(10), last: 100 };
        assert_eq!(proof.deadline(101, LEASE), Some(valid_until(proof.sent, LEASE)));
    }

    #[test]
    fn a_grant_from_before_the_proof_has_no_deadline() {
        let proof = PlaceProof { sent: Instant::from_nanos(10), last: 100 };
        assert_eq!(proof.deadline(100, LEASE), None);
        assert_eq!(proof.deadline(99, LEASE), None);
    }
}
