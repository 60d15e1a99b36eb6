//! Renewal of many leases on all nodes.
//!
//! A lease is renewed if a majority of the nodes still had the lease; a lost lease is never created again. Only after a
//! renewal are the other nodes joined: each node that lacks the lease is given the lease, so that the hold survives the
//! failure of a further node.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use super::{
    claim::{Claim, UnansweredAcquisitions},
    error::out_of_reach,
    nodes::Replies,
    protocol::Kind,
    quorum::Decision,
    shared::Shared,
};
use crate::{
    backend::{BoxFuture, LeaseId, Renew, Renewal},
    time::{
        clock::{Instant, sleep_until},
        deadline::valid_until,
    },
};

/// Upper bound on the wait for the outcome of a further lease once the outcome of one lease is known.
const GRACE: Duration = Duration::from_millis(20);

impl Renew for Arc<Shared> {
    fn renew<'a>(&'a self, due: &'a [LeaseId]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(renew(self, due))
    }
}

async fn renew(shared: &Arc<Shared>, due: &[LeaseId]) -> Vec<Renewal> {
    let sent = Instant::now();
    let (limit, unanswered) =
        (sent + shared.nodes.timeout(), Arc::new(UnansweredAcquisitions::of(shared.nodes.of.len(), sent)));
    let ask =
        |id: &LeaseId| shared.nodes.ask(Kind::Renew, |_| Some(Claim::of(id.clone(), limit, &unanswered)));
    let mut pending: Vec<Replies> = due.iter().map(ask).collect();
    let mut open = pending.len();
    while open > 0 {
        let progress = poll_fn(|cx| {
            let polled = pending.iter_mut().map(|replies| replies.poll_majority(cx));
            let still_open = polled.filter(Poll::is_pending).count();
            if still_open < open { Poll::Ready(still_open) } else { Poll::Pending }
        });
        // Slow nodes must not delay the outcome of a lease that does not need their answers.
        let limit = if open < due.len() { GRACE } else { Duration::MAX };
        let Ok(still_open) = tokio::time::timeout(limit, progress).await else { break };
        open = still_open;
    }
    let (mut outcomes, mut renewed) = (Vec::with_capacity(due.len()), Vec::new());
    for (replies, id) in pending.into_iter().zip(due) {
        outcomes.push(if replies.count.has_majority() == Decision::Yes {
            renewed.push((id.clone(), replies));
            Renewal::Renewed(valid_until(sent, id.ttl))
        } else if replies.count.is_denied() {
            if replies.is_revoked() { Renewal::Revoked } else { Renewal::NotHeld }
        } else {
            Renewal::Unknown(out_of_reach(&shared.nodes.of, replies.failures))
        });
    }
    tokio::spawn(join_missing(Arc::clone(shared), renewed));
    outcomes
}

/// Gives each of the just `renewed` leases to the nodes that lack the lease. The questions to join are put for all
/// leases before the first answer to such a question is awaited, so that a hanging node does not delay one lease after
/// another.
async fn join_missing(shared: Arc<Shared>, renewed: Vec<(LeaseId, Replies)>) {
    let mut joining = Vec::new();
    for (id, mut replies) in renewed {
        replies.all().await;
        // A node that refuses the renewal of a revoked grant has the lease.
        let missing = replies.denied_by & !replies.revoked_by;
        let Some(signature) = shared.held.signature(id.owner).filter(|_| missing != 0) else { continue };
        tracing::debug!(key = %id.key, "a node without this lease is joined");
        let limit = Instant::now() + shared.nodes.timeout();
        let unanswered = Arc::new(UnansweredAcquisitions::of(shared.nodes.of.len(), limit));
        let claim = Claim { signature: Some(signature), ..Claim::of(id, limit, &unanswered) };
        joining.push((ask(&shared, Kind::Join, &claim, missing), claim, missing));
    }
    for (mut replies, claim, missing) in joining {
        replies.all().await;
        // Until the limit of the claim, a node without a definite answer may still be joined, even if the lock is
        // released before.
        if replies.failures.iter().any(|(_, failure)| !failure.is_definite()) {
            sleep_until(claim.unanswered.limit()).await;
        }
        // The lease was released meanwhile, perhaps before these nodes were joined.
        if !shared.held.contains(claim.id.owner) {
            drop(ask(&shared, Kind::Release, &claim, missing & !replies.denied_by));
        }
    }
}

/// Asks the nodes in this set of bits.
fn ask(shared: &Shared, kind: Kind, claim: &Claim, nodes: u64) -> Replies {
    shared.nodes.ask(kind, |node| (nodes >> node & 1 == 1).then(|| claim.clone()))
}
