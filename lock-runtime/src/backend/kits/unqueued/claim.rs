//! An owner's claim to a lock, which is the subject of the questions to the nodes, and the owner's unanswered
//! acquisitions.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    backend::{LeaseId, common::server_clock},
    time::clock::Instant,
};

/// One owner's claim to a lock, for one node.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) id: LeaseId,
    /// The fence; for `Kind::Count`, the number of holds.
    pub(super) number: u64,
    /// What the holder says of itself; only a question that can begin a hold (`Kind::has_limit`) needs it.
    pub(super) signature: Option<Arc<str>>,
    /// The time from which a node refuses a question that can begin a hold (`Kind::has_limit`). Because the node's
    /// clock is estimated, the node may refuse later, by up to [`server_clock::ERROR`].
    pub(super) limit: Instant,
    pub(super) unanswered: Arc<UnansweredAcquisitions>,
    /// The number of the node.
    pub(super) node: usize,
}

impl Claim {
    pub(super) fn of(id: LeaseId, limit: Instant, unanswered: &Arc<UnansweredAcquisitions>) -> Self {
        let number = id.token.micros();
        Self { id, number, signature: None, limit, unanswered: Arc::clone(unanswered), node: 0 }
    }
}

/// The unanswered acquisitions of one owner, by the numbers of the nodes.
///
/// If the acquisition was sent once, a later release over the same connection is executed after the acquisition. Any
/// other release may overtake the acquisition, until the time from which no node executes the acquisition.
#[derive(Debug)]
pub(super) struct UnansweredAcquisitions {
    /// For each node: 1 plus the number of the connection over which the acquisition was sent; `u64::MAX` if the
    /// acquisition was sent again; 0 before it is sent, and once the node cannot execute it any more.
    over: Vec<AtomicU64>,
    /// The time from which no node executes the acquisitions.
    limit: Instant,
}

impl UnansweredAcquisitions {
    pub(super) fn of(nodes: usize, limit: Instant) -> Self {
        Self { over: (0..nodes).map(|_| AtomicU64::new(0)).collect(), limit: limit + server_clock::ERROR }
    }

    pub(super) fn limit(&self) -> Instant {
        self.limit
    }

    /// Records that the node cannot execute the acquisition any more: the node has answered, was not asked, or has
    /// executed a release that was sent after the acquisition.
    pub(super) fn ended_at(&self, node: usize) {
        self.over[node].store(0, Ordering::SeqCst);
    }

    /// Returns whether the node may have granted the lock, or may still grant it, without a known answer.
    pub(super) fn includes(&self, node: usize) -> bool {
        self.over[node].load(Ordering::SeqCst) != 0
    }

    pub(super) fn sent_over(&self, node: usize, connection: u64) {
        self.over[node].store(connection + 1, Ordering::SeqCst);
    }

    /// Returns whether a release over this connection is executed after the acquisition.
    pub(super) fn was_sent_over(&self, node: usize, connection: u64) -> bool {
        self.over[node].load(Ordering::SeqCst) == connection + 1
    }

    /// Records that the acquisition is sent again: from now on, a release may overtake the acquisition even over the
    /// same connection.
    pub(super) fn sent_again(&self, node: usize) {
        self.over[node].store(u64::MAX, Ordering::SeqCst);
    }

    /// Returns whether the acquisition may be executed after a release that was sent over this connection no earlier
    /// than `sent`.
    pub(super) fn may_follow(&self, node: usize, connection: u64, sent: Instant) -> bool {
        let over = self.over[node].load(Ordering::SeqCst);
        over != 0 && over != connection + 1 && sent < self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acquisition_may_follow_a_release_that_was_sent_before_its_limit_however_late_the_answer_is() {
        let now = Instant::now();
        let unanswered = UnansweredAcquisitions::of(1, now);
        let limit = unanswered.limit();
        assert!(!unanswered.may_follow(0, 7, now), "none was sent");
        unanswered.sent_over(0, 5);
        std::thread::sleep(limit.saturating_duration_since(Instant::now()));
        assert!(limit.has_passed() && unanswered.may_follow(0, 7, now));
        assert!(!unanswered.may_follow(0, 7, limit) && !unanswered.may_follow(0, 5, now));
    }
}
