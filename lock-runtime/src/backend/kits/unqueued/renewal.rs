//! Renewal of many leases on all nodes.
//!
//! A lease is renewed if a majority of the nodes still had it: it is never created again where it was lost. Only then
//! are the nodes joined that do not have it, so that the hold survives the next failure, too.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use super::{
    claim::{Claim, Trail},
    error::out_of_reach,
    nodes::Replies,
    protocol::Kind,
    quorum::{Count, Decision},
    shared::Shared,
};
use crate::{
    backend::{LeaseId, Renewal, kits::redis::error::Failure},
    time::{clock::Instant, deadline::valid_until},
};

/// How long to wait for the answers about some leases once those about others are known.
const GRACE: Duration = Duration::from_millis(20);

/// A lease whose renewal is under way.
struct Pending {
    replies: Replies,
    count: Count,
    /// The nodes, by the bits of their numbers, that do not have it.
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

pub(crate) async fn renew(shared: &Arc<Shared>, due: &[LeaseId]) -> Vec<Renewal> {
    let sent = Instant::now();
    let (limit, trail) = (sent + shared.nodes.timeout(), Arc::new(Trail::of(shared.nodes.of.len(), sent)));
    let mut pending: Vec<Pending> = due
        .iter()
        .map(|id| Pending {
            replies: shared.nodes.ask(Kind::Renew, |_| Some(Claim::of(id.clone(), limit, &trail))),
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
        // Nodes that are slow must not delay the answers about leases that do not need them.
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

/// Joins the nodes that do not have a lease which was just renewed. All at once: a node that hangs delays none twice.
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
        let claim = Claim::of(id, limit, &Arc::new(Trail::of(shared.nodes.of.len(), limit)));
        joining.push((ask(&shared, Kind::Join, &claim, lease.missing), claim));
    }
    for (mut replies, claim) in joining {
        let mut joined = 0;
        while let Some((node, answer)) = replies.next().await {
            // Without an answer the node may be joined later, until the limit of the claim.
            if !answer.is_ok_and(|ours| ours == 0) {
                joined |= 1 << node;
            }
        }
        // It was released meanwhile, perhaps before these nodes were joined.
        if !shared.held.contains(claim.owner) {
            drop(ask(&shared, Kind::Release, &claim, joined));
        }
    }
}

/// Asks the nodes in this set of bits.
fn ask(shared: &Shared, kind: Kind, claim: &Claim, nodes: u64) -> Replies {
    shared.nodes.ask(kind, |node| (nodes >> node & 1 == 1).then(|| claim.clone()))
}
