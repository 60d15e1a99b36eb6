//! Repeats unanswered releases to a node in the background, until the node answers.
//!
//! A node that does not answer belongs to a minority: otherwise, the caller gets an error and repeats the whole
//! release. Without these repetitions, a node that missed one release would refuse the lock until its lease ends.

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

/// Upper bound on the releases that are kept for one node; the lease of a discarded release ends by itself.
const MAX_PENDING_RELEASES: usize = 65_536;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(250);

/// The part of a node that repeats releases.
pub(super) trait Repeats: fmt::Debug + Send + Sync + 'static {
    fn pending_releases(&self) -> &PendingReleases;

    /// Sends what is [left over](PendingReleases::take), and waits for the answers, if the node can be reached.
    fn repeat(self: Arc<Self>) -> BoxFuture<'static, ()>;
}

/// The releases of one node that were not answered.
#[derive(Debug, Default)]
pub(super) struct PendingReleases {
    releases: Mutex<VecDeque<Unanswered>>,
    runs: AtomicBool,
}

/// A claim to release, and the time at which its lease has ended by itself.
#[derive(Debug)]
struct Unanswered {
    claim: Claim,
    ends: Instant,
}

impl PendingReleases {
    /// Keeps a release until the node has answered it, or the lease has ended by itself.
    fn add(node: &Arc<dyn Repeats>, release: Unanswered) {
        let this = node.pending_releases();
        let mut releases = lock(&this.releases);
        if releases.len() >= MAX_PENDING_RELEASES {
            releases.pop_front();
        }
        releases.push_back(release);
        drop(releases);
        if !this.runs.swap(true, Ordering::SeqCst) {
            background::handle().spawn(run(Arc::clone(node)));
        }
    }

    /// Takes the releases. A release that is not answered comes back.
    pub(super) fn take(node: &Arc<dyn Repeats>) -> Vec<PendingRelease> {
        let all = std::mem::take(&mut *lock(&node.pending_releases().releases));
        all.into_iter().map(|release| PendingRelease::of(Arc::clone(node), release)).collect()
    }

    /// Forgets the releases of leases that have ended by themselves; returns whether none is left.
    fn forget_ended(&self) -> bool {
        let mut releases = lock(&self.releases);
        releases.retain(|release| !release.ends.has_passed());
        releases.is_empty()
    }
}

/// A release that a node has yet to answer; it becomes a leftover if it is dropped unanswered, also if it is dropped
/// with its runtime. The value keeps the node alive, so that no release is forgotten when the store is dropped.
#[derive(Debug)]
pub(super) struct PendingRelease {
    node: Arc<dyn Repeats>,
    /// A time no later than the sending of the release.
    sent: Instant,
    /// `None` once the release is answered.
    release: Option<Unanswered>,
}

impl PendingRelease {
    pub(super) fn new(node: Arc<dyn Repeats>, claim: Claim) -> Self {
        let ends = Instant::now().max(claim.unanswered.limit()) + claim.id.ttl;
        Self::of(node, Unanswered { claim, ends })
    }

    fn of(node: Arc<dyn Repeats>, release: Unanswered) -> Self {
        Self { node, sent: Instant::now(), release: Some(release) }
    }

    pub(super) fn claim(&self) -> Option<&Claim> {
        self.release.as_ref().map(|release| &release.claim)
    }

    /// Records the answer over this connection: whether the owner held the lock.
    pub(super) fn answered(mut self, was_held: bool, connection: u64) {
        self.release = self.release.take().filter(|Unanswered { claim, .. }| {
            !was_held && claim.unanswered.may_follow(claim.node, connection, self.sent)
        });
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            PendingReleases::add(&self.node, release);
        }
    }
}

/// Repeats the releases of a node until none is left.
async fn run(node: Arc<dyn Repeats>) {
    let pending_releases = node.pending_releases();
    loop {
        clock::sleep_until(Instant::now() + PAUSE).await;
        if pending_releases.forget_ended() {
            pending_releases.runs.store(false, Ordering::SeqCst);
            // A release may have been added since the check.
            if lock(&pending_releases.releases).is_empty()
                || pending_releases.runs.swap(true, Ordering::SeqCst)
            {
                return;
            }
        }
        Arc::clone(&node).repeat().await;
    }
}
