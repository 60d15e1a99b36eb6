//! The questions to a node, and the names and scripts by which the clients of a store ask them.

use std::{fmt, time::Duration};

use redis::{Cmd, Value};

use super::sighting::Sighting;
use crate::{
    FencingToken, LockKey, OwnerToken,
    backend::{Mode, Severity, kits::redis::net::Script},
};

/// A question to a node about one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// To take the lock if it is free; the answer then contains the fence of the grant.
    Acquire,
    /// To raise the counter of fences to the fence of the claim.
    Raise,
    /// To renew the lease, if the node still has it.
    Renew,
    /// To give the node a lease that it lacks, and that a majority of the nodes has.
    Join,
    /// To record the owner's number of holds, if the owner holds the lock.
    Count,
    Release,
    /// To free a node from the lease of a refused or dropped attempt. A store may free the node without a notification
    /// of the waiting clients: with notifications, refused attempts would wake each other again and again while another
    /// client holds the lock.
    Withdraw,
}

impl Kind {
    pub(super) const ALL: [Self; 7] =
        [Self::Acquire, Self::Raise, Self::Renew, Self::Join, Self::Count, Self::Release, Self::Withdraw];

    /// Returns whether no node may execute the question after its limit, because it can begin a hold.
    pub(super) fn has_limit(self) -> bool {
        matches!(self, Self::Acquire | Self::Join)
    }

    /// Returns whether the question is repeated until the node has answered.
    pub(super) fn is_owed(self) -> bool {
        matches!(self, Self::Release | Self::Withdraw)
    }
}

/// The names and scripts of one kind of store, for one client.
///
/// The scripts of all [kinds](Kind) have the same keys (for each lock, the keys of its holder and of its counter of fences)
/// and arguments (the limit in µs of the server's time; then for each lock its owner, its ttl in ms, a number, and what the
/// holder says of itself). A script answers with the server's time in µs and a number for each lock, or with the time alone
/// if the limit had passed and nothing was done.
pub(crate) trait Protocol: fmt::Debug + Send + Sync + 'static {
    /// Returns the name of the kind of store.
    fn store(&self) -> &'static str;

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

    /// Returns whether a lease may be handed over from task to task. Each new holder needs a larger token, so a lease
    /// may be handed over only if the numbers between its token and the token of the next grant are free for new
    /// holders.
    fn hands_over(&self) -> bool {
        true
    }

    /// Returns the shortest and the longest pause before a waiter asks again although no release was announced.
    fn pause(&self, behind_foreign: bool) -> [Duration; 2];

    /// Returns the shortest and the longest time for which a lock is left free for clients that wait for it, in
    /// addition to the time that a notified client needs to ask.
    fn left_free(&self) -> [Duration; 2];

    /// Returns the scripts for operators.
    fn for_operators(&self) -> ForOperators;

    /// Reads what [`ForOperators::look`] answers about a lock that is held; `None` if the answer has another form.
    fn sighting(&self, answer: &[Value]) -> Option<Sighting>;

    /// Returns the channel on which the revocations of all locks under a prefix are announced; the name ends with
    /// [`REVOCATIONS`].
    fn revocations(&self, prefix: &str) -> String;

    /// Returns how bad it is if the server forgets its locks, and what follows; `None` if the rules for votes take care.
    fn if_forgotten(&self) -> Option<(Severity, &'static str)> {
        None
    }

    /// Returns the consequence of a server's outage, for the log.
    fn outage_means(&self) -> &'static str;
}

/// The end of the names of channels on which revocations are announced. The messages are the stored names of the locks.
pub(crate) const REVOCATIONS: &str = "~1:revoked";

/// The scripts of one kind of store for operators.
pub(crate) struct ForOperators {
    /// Shows the holders of locks. The arguments are, for each lock, its stored name and the channel of its releases; for
    /// each lock, the script answers with a list, with nil if the lock is free, or with the text of an error behind a
    /// "-".
    pub(crate) look: &'static Script,
    /// Ends the renewals of a grant; `None` if the store's locks can only be taken by force.
    pub(crate) revoke: Option<&'static Script>,
    /// Frees a lock. This script and `revoke` have the keys of a lock, as the scripts of a [`Kind`], and the arguments limit,
    /// owner (or the [identity](Sighting::identity) of a client of another library), fence (empty for such a client), and the
    /// channel of [revocations](Protocol::revocations). The answer is that of a [`Kind`] about one lock: 1 if the holder had
    /// the lock, otherwise 0.
    pub(crate) free: &'static Script,
    /// The type of a holder's key, as `SCAN` names the type.
    pub(crate) key_type: &'static str,
}
