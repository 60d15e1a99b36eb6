//! A hold on a majority of the nodes, or an attempt that may have left something on some of them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::runtime;

use super::{
    claim::{Claim, Trail},
    error::out_of_reach,
    operation::Kind,
    quorum::Count,
    shared::Shared,
};
use crate::{
    LockError, LockKey,
    backend::{BoxFuture, Lease, LeaseId, Releasable, Released},
    background,
    time::{backoff::between, clock::Instant},
};

/// Minimum and maximum time for which the lock is left free, so that clients which only look from time to time, or have
/// just been notified, can take it.
const LEFT_FREE: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(4)];

#[derive(Debug)]
pub(super) struct RedlockLease {
    pub(super) shared: Arc<Shared>,
    pub(super) id: LeaseId,
    pub(super) trail: Arc<Trail>,
    /// Whether a node may have released the lock without a known answer.
    pub(super) release_unanswered: AtomicBool,
}

impl RedlockLease {
    fn claim(&self) -> Claim {
        Claim::of(self.id.clone(), Instant::FAR_FUTURE, &self.trail)
    }

    /// Releases on these nodes, and waits for their answers, after an attempt that was refused. The others are asked,
    /// too, if they have not answered the attempt.
    pub(super) async fn send_for(&self, granted: u64) {
        let Shared { nodes, rules, .. } = &*self.shared;
        let of = |set: u64, node: usize| set >> node & 1 == 1;
        let claim = |node| (of(granted, node) || self.trail.leads_to(node)).then(|| self.claim());
        let mut replies = nodes.ask(Kind::Release, rules, claim);
        let mut left = granted;
        while left != 0
            && let Some((node, _)) = replies.next().await
        {
            left &= !(1 << node);
        }
    }

    /// Releases on all nodes. The outcome is known once a majority has answered; the caller does not wait for the others,
    /// but the library's own thread does, so that a shutdown leaves nothing behind.
    async fn send(&self) -> Result<Released, LockError> {
        let Shared { nodes, rules, held } = &*self.shared;
        // Before the first node is asked: from now on no node is joined for this owner.
        held.remove(self.id.owner);
        let mut replies = nodes.ask(Kind::Release, rules, |_| Some(self.claim()));
        let again = self.release_unanswered.swap(true, Ordering::AcqRel);
        let is_patient = runtime::Handle::current().id() == background::handle().id();
        let (mut count, mut failures) = (Count::of(nodes.of.len()), Vec::new());
        while let Some((node, answer)) = replies.next().await {
            count.add(answer.as_ref().ok().map(|ours| *ours == 1));
            failures.extend(answer.err().map(|failure| (node, failure)));
            let is_known = count.is_denied() || (count.is_definite() && (again || !count.may_be_denied()));
            if (is_known && !is_patient) || count.is_out_of_reach() {
                break;
            }
        }
        if !count.is_definite() {
            return Err(out_of_reach(&nodes.of, failures));
        }
        self.release_unanswered.store(false, Ordering::Release);
        Ok(if count.is_denied() && !again { Released::NotHeld } else { Released::Released })
    }
}

impl Drop for RedlockLease {
    fn drop(&mut self) {
        self.shared.held.remove(self.id.owner);
    }
}

impl Releasable for RedlockLease {
    fn key(&self) -> &LockKey {
        &self.id.key
    }

    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(self.send())
    }
}

impl Lease for RedlockLease {
    fn id(&self) -> &LeaseId {
        &self.id
    }

    /// The nodes have no queue, so other clients may always be waiting.
    fn is_contended(&self) -> bool {
        true
    }

    fn leave_free(&self) -> Duration {
        between(LEFT_FREE)
    }
}
