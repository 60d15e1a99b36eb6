//! The queue of this process for each lock: one task asks the store, and the other tasks wait behind it.
//!
//! When a holder leaves, the lease goes to the next waiter of this process without a round trip, with the next fencing
//! token of the same grant. Such hand-overs are limited, so that clients in other processes get the lock, too (see
//! [`tenure`]). This is lock cohorting (Dice, Marathe and Shavit, "Lock Cohorting", 2012) applied to leases.

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
