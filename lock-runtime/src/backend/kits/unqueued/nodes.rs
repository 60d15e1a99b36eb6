//! All nodes: one question to each at the same time, and the answers as they come.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{runtime, task::JoinSet};

use super::{
    claim::Claim,
    error::out_of_reach,
    fleet::FleetSettings,
    inbox::Inbox,
    node::{Line, Node, NodeService},
    operation::Answered,
    pending_releases::PendingRelease,
    protocol::{Kind, Protocol},
    quorum::{Count, Decision, MIN_QUIET, majority},
};
use crate::{
    LockError, LockErrorKind, LockKey,
    backend::{
        BoxFuture, RevocationNotifier, ServerStatus,
        common::cold::cold,
        kits::redis::{config::Config, error::Failure, net::Server},
    },
    time::clock::Instant,
};

/// Lead of a proposed fence over the nodes' time, so that the fence is not in the past when it arrives.
const FENCE_LEAD: Duration = Duration::from_millis(20);

/// Time for which [`Nodes::ping`] waits for each further answer once a majority is known to be usable.
const LATE_NODE_WAIT: Duration = Duration::from_millis(100);

/// The nodes of one store.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub(super) of: Vec<Arc<Node>>,
    pub(super) protocol: Arc<dyn Protocol>,
    pub(super) inbox: Arc<Inbox>,
}

impl Nodes {
    /// Creates the nodes. Without `rules`, each node has a vote from the start. Only a store on a single server has no
    /// `rules`, because the data of a single server are the only record of its locks.
    pub(crate) fn new(
        configs: Vec<Config>,
        protocol: Arc<dyn Protocol>,
        rules: Option<FleetSettings>,
    ) -> Result<Self, LockError> {
        let servers =
            configs.into_iter().map(|config| Server::new(config, protocol.store(), protocol.outage_means()));
        Ok(Self::on(servers.collect::<Result<_, _>>()?, protocol, rules))
    }

    /// Returns the same nodes with other rules, and without connections.
    pub(crate) fn with_rules(&self, rules: FleetSettings) -> Self {
        let servers = self.of.iter().map(|node| Arc::clone(node.server()));
        Self::on(servers.collect(), Arc::clone(&self.protocol), Some(rules))
    }

    /// Creates the nodes of these servers, without connections.
    fn on(servers: Vec<Arc<Server>>, protocol: Arc<dyn Protocol>, rules: Option<FleetSettings>) -> Self {
        let (inbox, identities) = (Arc::default(), Arc::default());
        let node = |(number, server): (usize, Arc<Server>)| {
            let service = NodeService::new(&server, &protocol, &inbox, number, &identities, rules);
            Arc::new(Node::new(server, service))
        };
        Self { of: servers.into_iter().enumerate().map(node).collect(), protocol, inbox }
    }

    pub(super) fn majority(&self) -> usize {
        majority(self.of.len())
    }

    /// See [`Backend::on_revocation`](crate::backend::Backend::on_revocation).
    pub(in crate::backend) fn on_revocation(&self, notifier: RevocationNotifier) {
        self.inbox.revocations.add(notifier);
    }

    /// Returns the longest time for which a node is waited for.
    pub(super) fn timeout(&self) -> Duration {
        self.of.iter().map(|node| node.server().config().response_timeout).max().unwrap_or_default()
    }

    /// Returns the open connections of the caller's runtime.
    pub(super) fn lines(&self) -> impl Iterator<Item = Arc<Line>> {
        self.of.iter().filter_map(|node| node.open_here())
    }

    /// Returns the fence to propose: the largest estimated time of a node, plus [`FENCE_LEAD`]; 0 if the caller's
    /// runtime has no open connection.
    pub(super) fn proposal(&self, now: Instant) -> u64 {
        self.lines().map(|line| line.connection.clock().at(now + FENCE_LEAD)).max().unwrap_or_default()
    }

    /// Returns what is known of each node.
    pub(crate) fn status(&self) -> Vec<ServerStatus> {
        self.of.iter().map(|node| node.server().status()).collect()
    }

    /// Returns the names by which the same store is recognized. One name lists the addresses of all nodes, each with
    /// its database, in a fixed spelling and order. A single server has a second name with its run id, because it may
    /// have several addresses.
    pub(crate) fn names(&self, scheme: &str) -> Vec<String> {
        let node = |node: &Arc<Node>| {
            let (address, db) = node.server().config().store();
            format!("{address}/{db}")
        };
        let mut addresses: Vec<_> = self.of.iter().map(node).collect();
        addresses.sort_unstable();
        let server = match &self.of[..] {
            [alone] => alone
                .run_id()
                .map(|run_id| format!("{scheme} {run_id}/{}", alone.server().config().store().1)),
            _ => None,
        };
        server.into_iter().chain([format!("{scheme}://{}", addresses.join(","))]).collect()
    }

    /// Checks that a majority of the nodes can be used and has votes.
    pub(crate) async fn ping(&self) -> Result<(), LockError> {
        let mut replies = self.on_each(|node| async move {
            let line = node.here().await?;
            line.ping().await?;
            node.service().check_vote(&line, Kind::Acquire).map(|()| 1)
        });
        loop {
            // Each further node gets `LATE_NODE_WAIT`, because its answer may show a mistake in the configuration.
            let has_majority = replies.count.has_majority() == Decision::Yes;
            let limit = if has_majority { LATE_NODE_WAIT } else { Duration::MAX };
            let Ok(Some((_, answer))) = tokio::time::timeout(limit, replies.next()).await else { break };
            if let Err(Failure::Refused(error)) = answer
                && error.kind() == LockErrorKind::InvalidOptions
            {
                return Err(error);
            }
        }
        self.majority_of(replies)
    }

    /// Waits until leases can be renewed on a majority of the nodes; returns an error if a majority cannot be reached.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn can_renew(&self) -> Result<(), LockError> {
        let able = self.of.iter().filter(|node| node.can_renew()).count();
        if able >= self.majority() {
            return Ok(());
        }
        cold(self.connect_for_renewals()).await
    }

    async fn connect_for_renewals(&self) -> Result<(), LockError> {
        let mut replies = self.on_each(|node| async move {
            // The caller's connection comes first: without it, there is nothing to renew.
            node.here().await?;
            if !node.can_renew() {
                node.connect_for_renewals().await.map_err(Failure::Refused)?;
            }
            Ok(1)
        });
        poll_fn(|cx| replies.poll_majority(cx)).await;
        self.majority_of(replies)
    }

    /// Returns whether a client waits for the releases of the lock, according to any node. A node that does not answer,
    /// or does not permit the question, counts as a no.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn is_waited_for(&self, key: &LockKey) -> bool {
        let mut question = redis::cmd("PUBSUB");
        question.arg("NUMSUB").arg(self.protocol.channel(key));
        let question = Arc::new(question);
        let mut asked = JoinSet::new();
        for node in &self.of {
            let (node, question) = (Arc::clone(node), Arc::clone(&question));
            asked.spawn(async move {
                let line = node.here().await.ok()?;
                let (_, waiters) = line.connection.call::<(String, u64)>(&question).await.ok()?;
                Some(waiters > 0)
            });
        }
        while let Some(answer) = asked.join_next().await {
            if let Ok(Some(true)) = answer {
                return true;
            }
        }
        false
    }

    /// Begins to `ask` each node. The futures are polled with the returned value.
    fn on_each<F>(&self, ask: impl Fn(Arc<Node>) -> F) -> Replies
    where
        F: Future<Output = Result<i64, Failure>> + Send + 'static,
    {
        let asking = self.of.iter().map(|node| Some(Reply::Connecting(Box::pin(ask(Arc::clone(node))))));
        Replies::of(asking)
    }

    /// Returns an error unless a majority of the nodes has answered yes.
    fn majority_of(&self, replies: Replies) -> Result<(), LockError> {
        match replies.count.has_majority() {
            Decision::Yes => Ok(()),
            Decision::Open | Decision::No => Err(out_of_reach(&self.of, replies.failures)),
        }
    }

    /// Returns whether a missing answer may come soon: its node was sent the question, and [is responsive](is_responsive).
    pub(super) fn may_answer_soon(&self, missing: &Replies) -> bool {
        missing.sent().any(|node| is_responsive(&self.of[node]))
    }

    /// Returns the node that all clients ask first after a tie: the first node that [is responsive](is_responsive).
    pub(super) fn leader(&self) -> Option<usize> {
        self.of.iter().position(|node| is_responsive(node))
    }

    /// Withdraws an acquisition whose caller has gone. Each withdrawal takes the connection of the acquisition, and is
    /// executed after the acquisition. No caller waits for the answers to the withdrawals: the lock is also released in
    /// the background, and a release that overtakes the acquisition is repeated.
    pub(super) fn withdraw_behind(&self, claim: &Claim) {
        if runtime::Handle::try_current().is_err() {
            return;
        }
        for (number, node) in self.of.iter().enumerate() {
            if let Some(line) = node.open_here()
                && claim.unanswered.was_sent_over(number, line.connection.id())
            {
                drop(line.put(Kind::Withdraw, Claim { node: number, ..claim.clone() }, None));
            }
        }
    }

    /// Asks each node for which there is a claim.
    pub(super) fn ask(&self, kind: Kind, claim: impl Fn(usize) -> Option<Claim>) -> Replies {
        let replies = self.of.iter().enumerate().map(|(number, node)| {
            let claim = Claim { node: number, ..claim(number)? };
            if let Some(line) = node.open_here().filter(|line| !line.connection.is_idle()) {
                return Some(put(node, &line, kind, claim));
            }
            let asking = connect_and_ask(Arc::clone(node), kind, claim);
            // A release or a withdrawal (`Kind::is_owed`) is sent even if the other nodes decide first. Any other
            // question is dropped in that case.
            Some(Reply::Connecting(if kind.is_owed() {
                let asking = tokio::spawn(asking);
                Box::pin(async move { asking.await.unwrap_or_else(|_| Err(Failure::runtime_gone())) })
            } else {
                Box::pin(asking)
            }))
        });
        Replies::of(replies)
    }
}

/// Returns whether the node is connected, and has not been silent for [`MIN_QUIET`].
fn is_responsive(node: &Node) -> bool {
    node.open_here().is_some_and(|line| !line.connection.is_silent_for(MIN_QUIET))
}

fn connect_and_ask(
    node: Arc<Node>,
    kind: Kind,
    claim: Claim,
) -> impl Future<Output = Result<i64, Failure>> + Send {
    // A release or a withdrawal is not forgotten even if the runtime is shut down before the future is polled.
    let owed = owed(&node, kind, &claim);
    async move {
        let line = node.here().await?;
        node.service().check_vote(&line, kind)?;
        node.service().listen(&line, kind, &claim);
        line.put(kind, claim, owed).await.unwrap_or_else(|_| Err(Failure::runtime_gone()))
    }
}

fn owed(node: &Arc<Node>, kind: Kind, claim: &Claim) -> Option<PendingRelease> {
    kind.is_owed().then(|| PendingRelease::new(Arc::<Node>::clone(node), claim.clone()))
}

fn put(node: &Arc<Node>, line: &Line, kind: Kind, claim: Claim) -> Reply {
    match node.service().check_vote(line, kind) {
        Ok(()) => {
            node.service().listen(line, kind, &claim);
            let owed = owed(node, kind, &claim);
            Reply::Sent(line.put(kind, claim, owed))
        }
        Err(failure) => Reply::Failed(failure),
    }
}

/// The answers to one question to the nodes. Positive numbers mean yes, others no.
pub(super) struct Replies {
    /// The answers that are still to come, by the numbers of the nodes.
    pending: Vec<Option<Reply>>,
    pub(super) count: Count,
    /// The set of the nodes that have answered no: bit `n` stands for the node with the number `n`.
    pub(super) denied_by: u64,
    /// The set of the nodes whose answer was below zero: to a renewal, that the grant is revoked.
    pub(super) revoked_by: u64,
    pub(super) failures: Vec<(usize, Failure)>,
}

enum Reply {
    Failed(Failure),
    Sent(Answered),
    /// The connection is made first.
    Connecting(BoxFuture<'static, Result<i64, Failure>>),
}

impl Replies {
    fn of(pending: impl ExactSizeIterator<Item = Option<Reply>>) -> Self {
        let count = Count::of(pending.len());
        Self { pending: pending.collect(), count, denied_by: 0, revoked_by: 0, failures: Vec::new() }
    }

    /// Adds the answers of further nodes.
    pub(super) fn extend(&mut self, further: Self) {
        for (slot, further) in self.pending.iter_mut().zip(further.pending) {
            *slot = slot.take().or(further);
        }
    }

    /// Returns whether a renewal was refused because the grant is revoked, and not because too many nodes lack the lease.
    pub(super) fn is_revoked(&self) -> bool {
        let lacking = (self.denied_by & !self.revoked_by).count_ones() as usize;
        self.revoked_by != 0 && !self.count.is_denied_by(lacking)
    }

    /// Returns the nodes whose answers are missing although they were sent the question.
    fn sent(&self) -> impl Iterator<Item = usize> {
        let sent =
            |(number, slot): (usize, &Option<Reply>)| matches!(slot, Some(Reply::Sent(_))).then_some(number);
        self.pending.iter().enumerate().filter_map(sent)
    }

    /// Returns the number of the next node that answers, with its answer; `None` if no answer is left.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Option<(usize, Result<i64, Failure>)> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Takes the answers until it is known whether a majority answers yes, or no answer is left.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) fn poll_majority(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.count.has_majority() == Decision::Open {
            if ready!(self.poll_next(cx)).is_none() {
                break;
            }
        }
        Poll::Ready(())
    }

    /// Takes all answers that are still to come.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn all(&mut self) {
        while self.next().await.is_some() {}
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, Result<i64, Failure>)>> {
        let mut left = false;
        for (number, slot) in self.pending.iter_mut().enumerate() {
            let answer = match slot {
                None => continue,
                Some(Reply::Failed(failure)) => Poll::Ready(Err(failure.clone())),
                Some(Reply::Sent(answered)) => Pin::new(answered)
                    .poll(cx)
                    .map(|answer| answer.unwrap_or_else(|_| Err(Failure::runtime_gone()))),
                Some(Reply::Connecting(reply)) => reply.as_mut().poll(cx),
            };
            if let Poll::Ready(answer) = answer {
                *slot = None;
                let is_yes = answer.as_ref().ok().map(|answer| *answer > 0);
                self.count.add(is_yes);
                self.denied_by |= u64::from(is_yes == Some(false)) << number;
                self.revoked_by |= u64::from(answer.as_ref().is_ok_and(|answer| *answer < 0)) << number;
                self.failures.extend(answer.as_ref().err().map(|failure| (number, failure.clone())));
                return Poll::Ready(Some((number, answer)));
            }
            left = true;
        }
        if left { Poll::Pending } else { Poll::Ready(None) }
    }
}

#[cfg(test)]
mod tests {
    use redis::{Cmd, Value};

    use super::*;
    use crate::{
        FencingToken, LockKey, OwnerToken,
        backend::{
            LeaseId, Mode,
            kits::{
                redis::net::Script,
                unqueued::{
                    claim::UnansweredAcquisitions,
                    pending_releases::{PendingReleases, Repeats},
                    protocol::ForOperators,
                    sighting::Sighting,
                },
            },
        },
    };

    #[derive(Debug)]
    struct NoProtocol;

    impl Protocol for NoProtocol {
        fn script(&self, _: Kind) -> Option<&'static Script> {
            None
        }

        fn write_counter(&self, _: &mut Cmd, _: &LockKey) {}

        fn write_owner(&self, _: &mut Cmd, _: Mode, _: OwnerToken) {}

        fn channel(&self, _: &LockKey) -> String {
            String::new()
        }

        fn for_operators(&self) -> ForOperators {
            unreachable!("no operator asks")
        }

        fn sighting(&self, _: &[Value]) -> Option<Sighting> {
            None
        }

        fn revocations(&self, _: &str) -> String {
            String::new()
        }

        fn pause(&self, _: bool) -> [Duration; 2] {
            [Duration::ZERO; 2]
        }

        fn left_free(&self) -> [Duration; 2] {
            [Duration::ZERO; 2]
        }

        fn store(&self) -> &'static str {
            ""
        }

        fn outage_means(&self) -> &'static str {
            ""
        }
    }

    #[test]
    fn a_release_is_owed_even_if_its_runtime_ends_before_it_is_polled() {
        let config = Config::from_url("redis://127.0.0.1:1").expect("valid");
        let nodes = Nodes::new(vec![config], Arc::new(NoProtocol), None).expect("valid");
        let id = LeaseId {
            key: LockKey::new("user:42").expect("valid"),
            mode: Mode::Exclusive,
            owner: OwnerToken::random(),
            token: FencingToken::from_micros(1),
            ttl: Duration::from_secs(60),
        };
        let limit = Instant::now();
        let claim = Claim::of(id, limit, &Arc::new(UnansweredAcquisitions::of(1, limit)));
        let node = Arc::clone(&nodes.of[0]);
        drop(connect_and_ask(Arc::clone(&node), Kind::Release, claim));
        let node: Arc<dyn Repeats> = node;
        let owed = PendingReleases::take(&node);
        assert_eq!(owed.len(), 1);
        for owed in owed {
            owed.answered(true, 0);
        }
    }
}
