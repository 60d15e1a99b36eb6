//! A hold on a majority of the nodes, or an attempt that may have left something on some of them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    claim::{Claim, UnansweredAcquisitions},
    error::out_of_reach,
    protocol::Kind,
    shared::Shared,
};
use crate::{
    LockError, LockKey,
    backend::{
        BoxFuture, HandOver, Lease, LeaseId, Releasable, Released,
        common::{contention::Contention, inquiry::Inquiry},
        kits::redis::foreign::USUAL_OPENING,
    },
    background,
    time::clock::{Instant, sleep_until},
};

/// Time for the last nodes to answer a release whose outcome is known, as a multiple of the time that the other nodes
/// took.
pub(super) const LATE_RELEASE_MULTIPLE: u32 = 3;
pub(super) const LAST_NODES_AT_LEAST: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct RacedLease {
    pub(super) shared: Arc<Shared>,
    pub(super) id: LeaseId,
    pub(super) unanswered: Arc<UnansweredAcquisitions>,
    /// The evidence of other waiting clients in the answers of the nodes that granted the lock.
    pub(super) contention: Contention,
    /// The question whether other clients wait. The first question comes after the node has executed the end of this
    /// process's own subscription to the releases of the lock.
    pub(super) inquiry: Inquiry,
    /// Whether a node may have executed a release whose answer is unknown.
    pub(super) release_unanswered: AtomicBool,
}

impl RacedLease {
    fn claim(&self) -> Claim {
        Claim::of(self.id.clone(), Instant::FAR_FUTURE, &self.unanswered)
    }

    /// Withdraws a refused attempt from the nodes that granted it, and waits for their answers. Nodes that have not
    /// answered the attempt are asked, too, but not waited for.
    pub(super) async fn withdraw_from(&self, granted: u64) {
        let nodes = &self.shared.nodes;
        let is_asked = |node| granted >> node & 1 == 1 || self.unanswered.includes(node);
        let claim = |node| is_asked(node).then(|| self.claim());
        let mut replies = nodes.ask(Kind::Withdraw, claim);
        let mut left = granted;
        while left != 0
            && let Some((node, _)) = replies.next().await
        {
            left &= !(1 << node);
        }
    }

    /// Returns whether clients of other libraries use the lock, as far as known.
    fn is_shared(&self, now: Instant) -> bool {
        !self.shared.foreign.remaining(self.id.key.stored(), now).is_zero()
    }

    /// Returns how long this process leaves the lock to other clients after the release; `None` if no other client is
    /// known to want the lock.
    fn head_start(&self, now: Instant) -> Option<Duration> {
        let is_wanted = self.contention.others_wait || self.is_shared(now);
        is_wanted.then(|| self.contention.head_start(self.shared.nodes.protocol.left_free()))
    }

    /// Releases the lock on all nodes. The outcome is known once a majority has answered. The caller does not wait for
    /// the other nodes; the library's own thread waits briefly for them, so that a shutdown leaves nothing behind on a
    /// working node.
    async fn send(&self) -> Result<Released, LockError> {
        let Shared { nodes, held, left_free, .. } = &*self.shared;
        // The owner is removed before the first node is asked, so that from then on no renewal gives the owner's lease
        // to a node that lacks the lease (`Kind::Join`).
        held.remove(self.id.owner);
        let now = Instant::now();
        if let Some(length) = self.head_start(now) {
            left_free.insert(self.id.key.stored(), now, now + length);
        }
        let mut replies = nodes.ask(Kind::Release, |_| Some(self.claim()));
        let again = self.release_unanswered.swap(true, Ordering::AcqRel);
        let is_patient = background::handle().is_here();
        let (sent, mut end) = (Instant::now(), Instant::FAR_FUTURE);
        loop {
            let next = tokio::select! {
                biased;
                next = replies.next() => next,
                () = sleep_until(end), if is_patient => None,
            };
            if next.is_none() {
                break;
            }
            let count = replies.count;
            let is_known = count.is_denied() || (count.is_definite() && (again || !count.may_be_denied()));
            if (is_known && !is_patient) || count.is_out_of_reach() {
                break;
            }
            if is_known {
                let now = Instant::now();
                end = end.min(
                    now + (now.saturating_duration_since(sent) * LATE_RELEASE_MULTIPLE)
                        .max(LAST_NODES_AT_LEAST),
                );
            }
        }
        if !replies.count.is_definite() {
            return Err(out_of_reach(&nodes.of, replies.failures));
        }
        self.release_unanswered.store(false, Ordering::Release);
        Ok(if replies.count.is_denied() && !again { Released::NotHeld } else { Released::Released })
    }
}

impl Drop for RacedLease {
    fn drop(&mut self) {
        self.shared.held.remove(self.id.owner);
    }
}

impl Releasable for RacedLease {
    fn key(&self) -> &LockKey {
        &self.id.key
    }

    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(self.send())
    }
}

impl Lease for RacedLease {
    fn id(&self) -> &LeaseId {
        &self.id
    }

    fn may_hand_over(&self) -> HandOver {
        let (protocol, contention) = (&self.shared.nodes.protocol, self.contention);
        let now = Instant::now();
        let is_shared = self.is_shared(now);
        let answer = if !protocol.hands_over() {
            HandOver::refused()
        } else if contention.is_likely() || is_shared {
            HandOver::contended()
        } else {
            HandOver::uncontended()
        };
        answer
            .keep_off(self.head_start(now).unwrap_or_else(|| USUAL_OPENING.due(contention.answered_at, now)))
    }

    fn wanted(&self) -> BoxFuture<'_, ()> {
        let ask = || async { Some(self.shared.nodes.is_waited_for(&self.id.key).await) };
        Box::pin(async move { self.inquiry.until_yes(ask).await })
    }

    fn count_holds(&self, holds: u32) {
        if self.shared.nodes.protocol.script(Kind::Count).is_none() {
            return;
        }
        // The counts are sent in the order of the calls, and no caller waits for an answer: a count after the release
        // changes nothing.
        let (shared, claim) = (Arc::clone(&self.shared), Claim { number: holds.into(), ..self.claim() });
        background::handle().spawn(async move {
            drop(shared.nodes.ask(Kind::Count, |_| Some(claim.clone())).next().await);
        });
    }
}
