//! The queue of this process: at most one of its tasks asks the store for a lock, the others wait here.
//!
//! When a holder leaves, the lease goes to the next waiter of this process without a round trip, with the next fencing
//! token of the same grant. While others wait in the store, hand-overs within this process have a bound. This is lock
//! cohorting (Dice, Marathe and Shavit, "Lock Cohorting", 2012) applied to leases.

mod entry;
mod follower;
mod leader;
mod queues;
mod tenure;

pub(crate) use self::{
    entry::{Entry, enter},
    follower::{Follower, GrantReceiver, Waited, answer_deadline},
    leader::Leader,
    queues::{AfterTurn, Cohorts, Holder, TimeoutCause},
};

#[cfg(test)]
mod tests;
