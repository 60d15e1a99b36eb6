//! The owners whose leases this process holds. After a renewal, a node that lacks the lease is given the lease only if
//! the owner is still recorded here: an owner that has released its lock must not get the lock on a further node.

use std::collections::HashSet;

use crate::{OwnerToken, sync::Sharded};

#[derive(Debug, Default)]
pub(super) struct HeldOwners(Sharded<HashSet<OwnerToken>>);

impl HeldOwners {
    pub(super) fn insert(&self, owner: OwnerToken) {
        self.0.at(number(owner)).insert(owner);
    }

    pub(super) fn remove(&self, owner: OwnerToken) {
        self.0.at(number(owner)).remove(&owner);
    }

    pub(super) fn contains(&self, owner: OwnerToken) -> bool {
        self.0.at(number(owner)).contains(&owner)
    }
}

/// Returns the last byte of the token, which is as random as the others.
fn number(owner: OwnerToken) -> u64 {
    let [.., low] = owner.expose().to_be_bytes();
    u64::from(low)
}
