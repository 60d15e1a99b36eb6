//! The owners whose leases this process holds. After a renewal, a node that lacks the lease is given the lease only if
//! the owner is still recorded here: an owner that has released its lock must not get the lock on a further node.

use std::{collections::HashMap, sync::Arc};

use crate::{OwnerToken, sync::Sharded};

#[derive(Debug, Default)]
pub(super) struct HeldOwners(Sharded<HashMap<OwnerToken, Arc<str>>>);

impl HeldOwners {
    /// Records an owner, with what the owner says of itself.
    pub(super) fn insert(&self, owner: OwnerToken, signature: Arc<str>) {
        self.0.at(number(owner)).insert(owner, signature);
    }

    pub(super) fn remove(&self, owner: OwnerToken) {
        self.0.at(number(owner)).remove(&owner);
    }

    pub(super) fn contains(&self, owner: OwnerToken) -> bool {
        self.0.at(number(owner)).contains_key(&owner)
    }

    /// Returns what the owner says of itself, if the owner holds a lease.
    pub(super) fn signature(&self, owner: OwnerToken) -> Option<Arc<str>> {
        self.0.at(number(owner)).get(&owner).cloned()
    }
}

/// Returns the last byte of the token, which is as random as the others.
fn number(owner: OwnerToken) -> u64 {
    let [.., low] = owner.expose().to_be_bytes();
    u64::from(low)
}
