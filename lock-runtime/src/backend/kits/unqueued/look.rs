//! What the nodes show of a lock, and which holder a majority of them shows. This module does no I/O.

use std::time::{Duration, SystemTime};

use super::{
    protocol::Protocol,
    quorum::majority,
    sighting::{SeenGrant, Sighting},
};
use crate::{
    FencingToken, LockHolder, LockKey, LockWaiter,
    backend::{LockState, common::signature},
};

/// Upper bound on the waiters that are shown: any client may subscribe to the channel of a lock.
const MAX_WAITERS: usize = 1_000;

/// What the nodes show of one lock.
pub(super) struct Look {
    /// The number of all nodes.
    pub(super) nodes: usize,
    /// The nodes that have answered, by their numbers; `None` if the lock is free on a node.
    pub(super) seen: Vec<(usize, Option<Sighting>)>,
}

/// A holder, with the nodes that show it.
pub(super) struct Candidate<'a> {
    nodes: usize,
    pub(super) seen_on: Vec<(usize, &'a Sighting)>,
}

impl Look {
    /// Returns the holders that a majority of the nodes shows, or would show if all nodes without an answer showed the same
    /// holder. The holder on most nodes comes first.
    ///
    /// If all nodes have answered, there is at most one. What a crashed client has left on a minority is no holder then.
    pub(super) fn candidates(&self) -> Vec<Candidate<'_>> {
        let mut all = Vec::<Candidate<'_>>::new();
        for (node, sighting) in &self.seen {
            let Some(sighting) = sighting else { continue };
            match all.iter_mut().find(|candidate| candidate.first().identity == sighting.identity) {
                Some(candidate) => candidate.seen_on.push((*node, sighting)),
                None => all.push(Candidate { nodes: self.nodes, seen_on: vec![(*node, sighting)] }),
            }
        }
        let silent = self.nodes - self.seen.len();
        all.retain(|candidate| candidate.seen_on.len() + silent >= majority(self.nodes));
        all.sort_by_key(|candidate| std::cmp::Reverse(candidate.seen_on.len()));
        all
    }

    /// Describes the lock.
    pub(super) fn state(&self, key: &LockKey, protocol: &dyn Protocol) -> LockState {
        let candidates = self.candidates();
        let Some(holder) = candidates.first() else { return LockState::free(key.clone()) };
        let waiting = holder.sightings().map(|sighting| sighting.waiting).max().unwrap_or_default();
        LockState::held(key.clone(), holder.shown(protocol))
            .with_waiters(vec![LockWaiter::new(); waiting.min(MAX_WAITERS)])
    }
}

impl Candidate<'_> {
    fn sightings(&self) -> impl Iterator<Item = &Sighting> {
        self.seen_on.iter().map(|(_, sighting)| *sighting)
    }

    fn grants(&self) -> impl Iterator<Item = &SeenGrant> {
        self.sightings().filter_map(|sighting| sighting.grant.as_ref())
    }

    /// Returns the first sighting; there is at least one.
    pub(super) fn first(&self) -> &Sighting {
        self.seen_on[0].1
    }

    /// Returns whether the holder has this token, or whether the holder is a client of another library if there is none.
    ///
    /// Nodes may show different fences of one grant: the fence of the grant is written back to a majority of the nodes, and
    /// any two majorities share a node.
    pub(super) fn has(&self, token: Option<FencingToken>, protocol: &dyn Protocol) -> bool {
        match token {
            // What only may be a lock of another library may as well be data of a program.
            None => self.grants().next().is_none() && !self.first().is_doubtful,
            Some(token) => self.grants().any(|grant| {
                let of_grant = protocol.token(grant.fence);
                if protocol.hands_over() { of_grant.micros() == token.micros() } else { of_grant == token }
            }),
        }
    }

    /// Returns the largest fence, which is at least that of the grant if a majority shows the holder; `None` for a client of
    /// another library.
    pub(super) fn largest_fence(&self) -> Option<u64> {
        self.grants().map(|grant| grant.fence).max()
    }

    /// Returns the fence that most nodes show; of several, the largest.
    fn usual_fence(&self) -> Option<u64> {
        let count = |fence: u64| self.grants().filter(|grant| grant.fence == fence).count();
        self.grants().map(|grant| grant.fence).max_by_key(|fence| (count(*fence), *fence))
    }

    /// Returns for how long a majority of the nodes has the lease.
    fn remaining(&self) -> Duration {
        let mut remaining: Vec<_> = self.sightings().map(|sighting| sighting.remaining).collect();
        remaining.sort_unstable_by(|left, right| right.cmp(left));
        remaining[remaining.len().min(majority(self.nodes)) - 1]
    }

    fn shown(&self, protocol: &dyn Protocol) -> LockHolder {
        let holder = LockHolder::new().with_remaining(Some(self.remaining()));
        let (Some(fence), Some(grant)) = (self.usual_fence(), self.grants().min_by_key(|grant| grant.since))
        else {
            return holder.foreign();
        };
        let signature = signature::read(&grant.signature);
        let holder = holder
            .with_client(signature.client)
            .with_label(signature.label)
            .with_since(SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(grant.since)))
            .with_token(protocol.token(fence));
        let revoked = self.grants().filter(|grant| grant.is_revoked).count();
        if revoked >= majority(self.nodes) { holder.revoked() } else { holder }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(nodes: usize, shown: &[(usize, &str)]) -> Look {
        let sighting = |holder: &str| Sighting::foreign(holder.as_bytes().to_vec(), 1_000, 0);
        let seen = shown
            .iter()
            .map(|(node, holder)| (*node, Some(*holder).filter(|holder| !holder.is_empty()).map(sighting)));
        Look { nodes, seen: seen.collect() }
    }

    #[test]
    fn the_holder_is_the_one_that_a_majority_shows_or_may_show() {
        for (nodes, shown, expected) in [
            (3, &[(0, "a"), (1, "a"), (2, "a")][..], &["a"][..]),
            (3, &[(0, "a"), (1, "a"), (2, "b")], &["a"]),
            (3, &[(0, "a"), (1, "b"), (2, "c")], &[]),
            (3, &[(0, "a"), (1, ""), (2, "")], &[]),
            // The third node is silent.
            (3, &[(0, "a"), (1, "")], &["a"]),
            (3, &[(0, ""), (1, "")], &[]),
            (5, &[(0, "a"), (1, ""), (2, "")], &["a"]),
            (5, &[(0, "a"), (1, ""), (2, ""), (3, "")], &[]),
            (5, &[(0, "b"), (1, "a"), (2, "a")], &["a", "b"]),
            (1, &[(0, "a")], &["a"]),
        ] {
            let look = look(nodes, shown);
            let found: Vec<_> =
                look.candidates().iter().map(|holder| holder.first().identity.clone()).collect();
            let expected: Vec<_> = expected.iter().map(|holder| holder.as_bytes().to_vec()).collect();
            assert_eq!(found, expected, "{nodes} {shown:?}");
        }
    }

    #[test]
    fn the_fence_of_a_grant_is_the_one_that_most_nodes_show() {
        let sighting = |fence| {
            let grant =
                SeenGrant { fence, recorded: 9, since: 9, signature: String::new(), is_revoked: false };
            Sighting { grant: Some(grant), ..Sighting::foreign(b"a".to_vec(), 1_000, 0) }
        };
        for (fences, usual, largest) in [([7, 7, 9], 7, 9), ([8, 9, 9], 9, 9), ([7, 8, 9], 9, 9)] {
            let seen = fences.into_iter().enumerate().map(|(node, fence)| (node, Some(sighting(fence))));
            let look = Look { nodes: 3, seen: seen.collect() };
            let holders = look.candidates();
            assert_eq!((holders[0].usual_fence(), holders[0].largest_fence()), (Some(usual), Some(largest)));
        }
    }

    #[test]
    fn a_lease_lasts_while_a_majority_has_it() {
        let sighting = |pttl| Some(Sighting::foreign(b"a".to_vec(), pttl, 0));
        for (pttls, expected) in [
            ([3_000, 1_000, 2_000], Duration::from_secs(2)),
            ([-1, 1_000, -1], Duration::MAX),
            ([-2, 1_000, 5_000], Duration::from_secs(1)),
        ] {
            let seen = pttls.into_iter().enumerate().map(|(node, pttl)| (node, sighting(pttl)));
            let look = Look { nodes: 3, seen: seen.collect() };
            assert_eq!(look.candidates()[0].remaining(), expected);
        }
    }
}
