//! The queue of this process: at most one of its tasks asks the store for a lock, the others wait here.
//!
//! When a holder leaves, the lease goes to the next waiter of this process without a round trip, with the next
//! fencing token of the same grant. While others wait in the store this happens only within a bound. This is lock
//! cohorting (Dice, Marathe and Shavit, "Lock Cohorting", 2012) applied to leases.

mod follower;
mod leader;
mod queues;
mod tenure;

use std::sync::Arc;

use crate::{LockError, engine::request::Request};

use self::queues::Joined;
pub(crate) use self::{
    follower::{Above, Follower, Waited, answer_deadline},
    leader::Leader,
    queues::{Cohorts, Holder, Leaving, TimeoutCause},
};

/// The next step of a task that wants a lock.
#[derive(Debug)]
pub(crate) enum Entry {
    /// Ask the store; others may come to wait behind it.
    Lead(Leader),
    /// Wait behind another task of this process.
    Follow(Follower),
    /// Fail: a task of this process holds the lock, and the request does not wait.
    Busy(Holder),
    /// Ask the store without joining the queue: one attempt without waiting, while another task asks or its hold is in
    /// doubt.
    Bypass,
}

/// Joins the queue of the requested lock for the attempt `id`.
pub(crate) fn enter(
    cohorts: &Arc<Cohorts>,
    request: &Request,
    id: u64,
    above: impl FnOnce() -> Arc<dyn Above>,
) -> Result<Entry, LockError> {
    let lock = || request.lock.clone();
    Ok(match cohorts.join(request, id)? {
        Joined::Leads => Entry::Lead(Leader::new(cohorts, lock(), id)),
        Joined::Waits(handover) => Entry::Follow(Follower::new(cohorts, above(), lock(), id, handover)),
        Joined::Busy(holder) => Entry::Busy(holder),
        Joined::Bypasses => Entry::Bypass,
    })
}

#[cfg(test)]
mod tests;
