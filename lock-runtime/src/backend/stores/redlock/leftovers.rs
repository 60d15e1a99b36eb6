//! Releases that a node has not answered: they are repeated in the background until it answers.
//!
//! They concern a minority of the nodes, or their caller would have an error and repeat the whole release. Without them,
//! a node that was away for a moment would refuse a lock until its lease ends.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::claim::Claim;
use crate::{
    backend::BoxFuture,
    background,
    sync::lock,
    time::clock::{self, Instant},
};

/// Upper bound on the releases that are kept for one node; the leases of others end by themselves.
const KEPT: usize = 65_536;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(250);

/// The part of a node that repeats releases.
pub(super) trait Repeats: fmt::Debug + Send + Sync + 'static {
    fn leftovers(&self) -> &Leftovers;

    /// Releases these claims, and waits for the answers. Those that are not answered are dropped, and so left over.
    fn release(self: Arc<Self>, owed: Vec<Owed>) -> BoxFuture<'static, ()>;
}

/// The releases of one node that were not answered.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// Each with the time at which its lease has ended by itself.
    releases: Mutex<VecDeque<(Instant, Claim)>>,
    runs: AtomicBool,
}

impl Leftovers {
    /// Keeps a release until the node has answered it, or the lease has ended by itself.
    fn add(node: &Arc<dyn Repeats>, claim: Claim) {
        let this = node.leftovers();
        let ends = Instant::now().max(claim.trail.limit()) + claim.ttl;
        let mut releases = lock(&this.releases);
        if releases.len() >= KEPT {
            releases.pop_front();
        }
        releases.push_back((ends, claim));
        drop(releases);
        if !this.runs.swap(true, Ordering::SeqCst) {
            background::handle().spawn(run(Arc::clone(node)));
        }
    }

    /// Takes the releases whose leases have not ended yet.
    fn take(&self) -> Vec<Claim> {
        let (now, all) = (Instant::now(), std::mem::take(&mut *lock(&self.releases)));
        all.into_iter().filter(|(ends, _)| *ends > now).map(|(_, claim)| claim).collect()
    }
}

/// A release that a node owes an answer. Dropped without it, also with its runtime, it is left over. It keeps the node
/// alive, so that nothing is forgotten with the store.
#[derive(Debug)]
pub(super) struct Owed {
    node: Arc<dyn Repeats>,
    /// `None` once it is answered.
    claim: Option<Claim>,
}

impl Owed {
    pub(super) fn new(node: Arc<dyn Repeats>, claim: Claim) -> Self {
        Self { node, claim: Some(claim) }
    }

    pub(super) fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    /// Takes the answer over this connection: whether the owner held the lock.
    pub(super) fn answered(mut self, was_held: bool, connection: u64) {
        self.claim =
            self.claim.take().filter(|claim| !was_held && claim.trail.may_follow(claim.node, connection));
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            Leftovers::add(&self.node, claim);
        }
    }
}

/// The job; ends when nothing is left.
async fn run(node: Arc<dyn Repeats>) {
    let leftovers = node.leftovers();
    loop {
        clock::sleep_until(Instant::now() + PAUSE).await;
        let claims = leftovers.take();
        if claims.is_empty() {
            leftovers.runs.store(false, Ordering::SeqCst);
            // One may have come in between.
            if lock(&leftovers.releases).is_empty() || leftovers.runs.swap(true, Ordering::SeqCst) {
                return;
            }
            continue;
        }
        let owed = claims.into_iter().map(|claim| Owed::new(Arc::clone(&node), claim)).collect();
        Arc::clone(&node).release(owed).await;
    }
}
