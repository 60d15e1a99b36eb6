//! Renewal of many leases on all nodes.
//!
//! A lease is renewed if a majority of the nodes still had it; a lost lease is never created again. Only after a
//! renewal are the other nodes joined, so that the hold survives the next failure, too.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use super::{
    claim::{Claim, UnansweredAcquisitions},
    error::out_of_reach,
    nodes::Replies,
    protocol::Kind,
    quorum::{Count, Decision},
    shared::Shared,
};
use crate::{
    backend::{BoxFuture, LeaseId, Renew, Renewal, kits::redis::error::Failure},
    time::{
        clock::{Instant, sleep_until},
        deadline::valid_until,
    },
};

/// Upper bound on the wait for the outcome of a further lease once the outcome of one lease is known.
const GRACE: Duration = Duration::from_millis(20);

/// A lease whose renewal is under way.
struct Pending {
    replies: Replies,
    count: Count,
    /// The nodes, by the bits of their numbers, that do not have the lease.
    missing: u64,
    failures: Vec<(usize, Failure)>,
    decision: Decision,
}

impl Pending {
    /// Takes the answers that have come; returns whether the outcome is known.
    fn advance(&mut self, cx: &mut Context<'_>) -> bool {
        while self.decision == Decision::Open {
            match self.replies.poll_next(cx) {
                Poll::Pending => return false,
                Poll::Ready(None) => return true,
                Poll::Ready(Some((node, answer))) => {
                    self.count.add(answer.as_ref().ok().map(|ours| *ours == 1));
                    match answer {
                        Ok(1) => {}
                        Ok(_) => self.missing |= 1 << node,
                        Err(failure) => self.failures.push((node, failure)),
                    }
                    self.decision = self.count.has_majority();
                }
            }
        }
        true
    }
}

impl Renew for Arc<Shared> {
    fn renew<'a>(&'a self, due: &'a [LeaseId]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(renew(self, due))
    }
}

async fn renew(shared: &Arc<Shared>, due: &[LeaseId]) -> Vec<Renewal> {
    let sent = Instant::now();
    let (limit, unanswered) =
        (sent + shared.nodes.timeout(), Arc::new(UnansweredAcquisitions::of(shared.nodes.of.len(), sent)));
    let mut pending: Vec<Pending> = due
        .iter()
        .map(|id| Pending {
            replies: shared.nodes.ask(Kind::Renew, |_| Some(Claim::of(id.clone(), limit, &unanswered))),
            count: Count::of(shared.nodes.of.len()),
            missing: 0,
            failures: Vec::new(),
            decision: Decision::Open,
        })
        .collect();
    let mut open = pending.len();
    while open > 0 {
        let progress = poll_fn(|cx| {
            let still_open =
                pending.iter_mut().filter_map(|lease| (!lease.advance(cx)).then_some(())).count();
            if still_open < open { Poll::Ready(still_open) } else { Poll::Pending }
        });
        // Slow nodes must not delay the outcome of a lease that does not need their answers.
        let limit = if open < due.len() { GRACE } else { Duration::MAX };
        let Ok(still_open) = tokio::time::timeout(limit, progress).await else { break };
        open = still_open;
    }
    let (mut outcomes, mut renewed) = (Vec::with_capacity(due.len()), Vec::new());
    for (lease, id) in pending.into_iter().zip(due) {
        outcomes.push(if lease.decision == Decision::Yes {
            renewed.push((id.clone(), lease));
            Renewal::Renewed(valid_until(sent, id.ttl))
        } else if lease.count.is_denied() {
            Renewal::NotHeld
        } else {
            Renewal::Unknown(out_of_reach(&shared.nodes.of, lease.failures))
        });
    }
    tokio::spawn(join_missing(Arc::clone(shared), renewed));
    outcomes
}

/// Joins the nodes that do not have a just renewed lease. All nodes are joined at once, so that a hanging node delays
/// no lease twice.
async fn join_missing(shared: Arc<Shared>, renewed: Vec<(LeaseId, Pending)>) {
    let mut joining = Vec::new();
    for (id, mut lease) in renewed {
        while let Some((node, answer)) = lease.replies.next().await {
            if answer.is_ok_and(|ours| ours == 0) {
                lease.missing |= 1 << node;
            }
        }
        if lease.missing == 0 || !shared.held.contains(id.owner) {
            continue;
        }
        tracing::debug!(key = %id.key, "a node without this lease is joined");
        let limit = Instant::now() + shared.nodes.timeout();
        let claim = Claim::of(id, limit, &Arc::new(UnansweredAcquisitions::of(shared.nodes.of.len(), limit)));
        joining.push((ask(&shared, Kind::Join, &claim, lease.missing), claim));
    }
    for (mut replies, claim) in joining {
        let (mut joined, mut is_unanswered) = (0, false);
        while let Some((node, answer)) = replies.next().await {
            is_unanswered |= answer.as_ref().is_err_and(|failure| !failure.is_definite());
            if !answer.is_ok_and(|ours| ours == 0) {
                joined |= 1 << node;
            }
        }
        // Until the limit of the claim, a node without a definite answer may still be joined, even if the lock is
        // released before.
        if is_unanswered {
            sleep_until(claim.unanswered.limit()).await;
        }
        // The lease was released meanwhile, perhaps before these nodes were joined.
        if !shared.held.contains(claim.owner) {
            drop(ask(&shared, Kind::Release, &claim, joined));
        }
    }
}

/// Asks the nodes in this set of bits.
fn ask(shared: &Shared, kind: Kind, claim: &Claim, nodes: u64) -> Replies {
    shared.nodes.ask(kind, |node| (nodes >> node & 1 == 1).then(|| claim.clone()))
}
