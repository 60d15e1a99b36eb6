//! What all clients of a store agree upon: the names on a server, and the scripts.

use std::{fmt, time::Duration};

use redis::Cmd;

use crate::{
    FencingToken, LockKey, OwnerToken,
    backend::{Mode, kits::redis::net::Script},
};

/// A question to a node about one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// To take the lock, if it is free: with a fence, if it was taken.
    Acquire,
    /// To raise the counter of fences to that of the claim.
    Raise,
    /// To renew the lease, if the node still has it.
    Renew,
    /// To take over a lease that the node does not have.
    Join,
    /// To record how often the owner holds the lock, if it does.
    Count,
    Release,
    /// To release what a refused attempt was granted. The lock was not held, so the waiting clients are not notified:
    /// they would wake each other again and again while a majority holds it.
    Withdraw,
}

impl Kind {
    pub(super) const ALL: [Self; 7] =
        [Self::Acquire, Self::Raise, Self::Renew, Self::Join, Self::Count, Self::Release, Self::Withdraw];

    /// Returns whether a node may not execute it after its limit, because it can begin a hold.
    pub(super) fn has_limit(self) -> bool {
        matches!(self, Self::Acquire | Self::Join)
    }

    /// Returns whether its question is repeated until the node has answered.
    pub(super) fn is_owed(self) -> bool {
        matches!(self, Self::Release | Self::Withdraw)
    }
}

/// The names and scripts of one kind of store, for one client.
///
/// All scripts have the same keys and arguments: for each lock the keys of its holder and of its counter of fences; first
/// the limit in µs of the server's time, then for each lock its owner, its ttl in ms, and a number. They answer with the
/// server's time in µs, and with a number for each lock; with the time alone if the limit had passed and nothing was
/// done.
pub(crate) trait Protocol: fmt::Debug + Send + Sync + 'static {
    /// Returns the script for a question; `None` if these clients never ask it.
    fn script(&self, kind: Kind) -> Option<&'static Script>;

    /// Adds the name of a lock's counter of fences.
    fn write_counter(&self, call: &mut Cmd, key: &LockKey);

    /// Adds an owner as the server knows it.
    fn write_owner(&self, call: &mut Cmd, mode: Mode, owner: OwnerToken);

    /// Returns the channel on which the releases of a lock are announced.
    fn channel(&self, key: &LockKey) -> String;

    /// Returns the token of a grant with this fence.
    fn token(&self, fence: u64) -> FencingToken {
        FencingToken::from_micros(fence)
    }

    /// Returns whether a lease may pass from task to task: its token leaves numbers for the next holders.
    fn hands_over(&self) -> bool {
        true
    }

    /// Returns the shortest and the longest pause before a waiter asks again although no release was announced.
    fn pause(&self, behind_foreign: bool) -> [Duration; 2];

    /// Returns the shortest and the longest time for which a lock is left free for clients that wait for it, in addition
    /// to that in which they are notified and ask.
    fn left_free(&self) -> [Duration; 2];

    /// Returns what follows from an outage of a server, for the log.
    fn outage_means(&self) -> &'static str;
}
