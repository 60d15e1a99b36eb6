//! The servers of a store: which one has a lock, and where a call goes that did not succeed at the first.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    names::Layout,
    queue::{Line, Participant},
    replicas::Replicas,
};
use crate::{
    LockError, LockKey,
    backend::{
        BoxFuture, ServerStatus,
        kits::redis::{
            batch::{GroupCommit, join_all},
            config::Config,
            error::{Failure, Redirection},
            net::{Cluster, ClusterSettings, Connections, Server},
            slot::Slot,
        },
    },
    time::{
        backoff::between,
        clock::{self, Instant},
    },
};

/// Upper bound on the servers to which one call is sent without a pause: the servers of a cluster agree before long.
const MAX_MOVES: u32 = 8;
/// Bounds on the pause before a call is made again whose keys are being moved, or about which the servers do not agree.
const PAUSE: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(40)];
/// Bounds on the pause before a call is made again that no server takes for now.
const PAUSE_IF_DOWN: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(150)];

/// Upper bound on the doublings of these pauses, if the call is refused again and again.
const MAX_DOUBLINGS: u32 = 3;
/// Time without an answer from which a connection does not show that its server is there.
const SILENT: Duration = Duration::from_millis(100);

/// A server of a store.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) connections: Arc<Connections<Participant>>,
    /// Where the leases are confirmed, if replicas must have them.
    pub(crate) replicas: Option<Arc<Replicas>>,
}

impl Node {
    fn new(server: Arc<Server>, participant: Participant) -> Self {
        let replicas = Replicas::of(&server);
        Self { connections: Arc::new(Connections::new(server, participant)), replicas }
    }
}

/// The servers of a store.
#[derive(Debug)]
pub(crate) struct Servers {
    participant: Participant,
    all: All,
}

#[derive(Debug)]
enum All {
    One(Arc<Node>),
    Cluster(Arc<Cluster<Node>>),
}

impl Servers {
    /// Creates the servers of a store on one server, whose place may change.
    pub(crate) fn one(server: Arc<Server>, group_commit: GroupCommit) -> Arc<Self> {
        let participant = Participant::new(group_commit, Layout::ByPrefix);
        let node = Node::new(server, participant.on_another_server());
        Arc::new(Self { participant, all: All::One(Arc::new(node)) })
    }

    /// Creates the servers of a store on a cluster.
    pub(crate) fn cluster(
        settings: ClusterSettings,
        group_commit: GroupCommit,
    ) -> Result<Arc<Self>, LockError> {
        let participant = Participant::new(group_commit, Layout::BySlot);
        let ours = participant.on_another_server();
        let make = move |server| Node::new(server, ours.on_another_server());
        Ok(Arc::new(Self { participant, all: All::Cluster(Cluster::new(settings, make)?) }))
    }

    /// Returns this process as a participant in the queues of all servers.
    pub(crate) fn participant(&self) -> &Participant {
        &self.participant
    }

    pub(crate) fn config(&self) -> &Config {
        match &self.all {
            All::One(node) => node.connections.server().config(),
            All::Cluster(cluster) => cluster.config(),
        }
    }

    /// Returns the run id of the store's only server, if known.
    pub(crate) fn run_id(&self) -> Option<Box<str>> {
        match &self.all {
            All::One(node) => node.connections.run_id(),
            All::Cluster(_) => None,
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.all, All::Cluster(_))
    }

    /// Returns what is known of each server.
    pub(crate) fn status(&self) -> Vec<ServerStatus> {
        match &self.all {
            All::One(node) => vec![node.connections.server().status()],
            All::Cluster(cluster) => cluster.status(),
        }
    }

    /// Returns all servers that have locks, in the order of their numbers, which stay the same.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn all(&self) -> Result<Vec<(u64, Arc<Node>)>, LockError> {
        match &self.all {
            All::One(node) => Ok(vec![(0, Arc::clone(node))]),
            All::Cluster(cluster) => cluster.servers().await,
        }
    }

    /// Checks that the server answers, or that a server of the cluster takes calls. The servers of a cluster are asked at the
    /// same time. A server that is away costs only its own locks, so the other servers are enough. A server that refuses this
    /// client is an error, because it would go on refusing.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn ping(self: &Arc<Self>) -> Result<(), LockError> {
        if let All::One(node) = &self.all {
            return self.ping_one(node).await.map_err(Failure::into_error);
        }
        let nodes = self.all().await?;
        let mut answers: Vec<_> = nodes.iter().map(|_| Ok(())).collect();
        let calls = nodes.iter().zip(&mut answers).map(|((_, node), answer)| -> BoxFuture<'_, ()> {
            Box::pin(async { *answer = ping_of_cluster(node).await.map_err(Failure::into_error) })
        });
        join_all(calls.collect()).await;
        let is_served = answers.iter().any(Result::is_ok);
        let failures = answers.into_iter().filter_map(Result::err);
        let counts = |failure: &LockError| !is_served || !failure.is_retryable();
        // A refusal says more than an outage.
        failures.filter(counts).min_by_key(LockError::is_retryable).map_or(Ok(()), Err)
    }

    /// Checks that the only server answers, or the one that replaces it meanwhile.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn ping_one(self: &Arc<Self>, node: &Node) -> Result<(), Failure> {
        let mut route = self.route_to(None, Again::IfBroken);
        loop {
            let answer = match node.connections.here().await {
                Ok(line) => line.connection().call::<redis::Value>(&redis::cmd("PING")).await,
                Err(failure) => Err(failure),
            };
            let Err(failure) = answer else { return Ok(()) };
            let Some(pause) = route.again_after(&failure) else { return Err(failure) };
            clock::sleep_until(Instant::now() + pause).await;
        }
    }

    /// Returns the addresses of the servers of a cluster, as far as they are known.
    pub(crate) fn addresses(&self) -> Vec<String> {
        match &self.all {
            All::One(_) => Vec::new(),
            All::Cluster(cluster) => cluster.addresses(),
        }
    }

    /// Returns a number that the locks on one server have in common.
    pub(crate) fn lane(&self, key: &LockKey) -> u64 {
        match &self.all {
            All::One(_) => 0,
            All::Cluster(cluster) => cluster.lane(Slot::of(key.stored())),
        }
    }

    /// Begins the way to the server that has a lock.
    pub(crate) fn route(self: &Arc<Self>, key: &LockKey, again: Again) -> Route {
        let slot = match &self.all {
            All::One(_) => None,
            All::Cluster(_) => Some(Slot::of(key.stored())),
        };
        self.route_to(slot, again)
    }

    fn route_to(self: &Arc<Self>, slot: Option<Slot>, again: Again) -> Route {
        let until = Instant::now() + self.config().response_timeout;
        Route {
            servers: Arc::clone(self),
            slot,
            again,
            until,
            has_arrived: false,
            refused_since: None,
            moves: 0,
            laters: 0,
            is_repeated: false,
            next: None,
        }
    }
}

/// Checks that a server of a cluster takes calls.
///
/// # Cancel safety
/// Cancel safe.
async fn ping_of_cluster(node: &Node) -> Result<(), Failure> {
    let line = node.connections.here().await?;
    let info: String = line.connection().call(redis::cmd("CLUSTER").arg("INFO")).await?;
    if info.contains("cluster_state:ok") {
        return Ok(());
    }
    Err(Failure::Refused(LockError::backend(
        "the Redis Cluster takes no calls for now (`cluster_state` in `CLUSTER INFO`); `redis-cli --cluster check` says why",
    )))
}

/// When a call is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// If it certainly was not applied.
    IfNotApplied,
    /// Also if it may have been applied, but its connection broke: applied twice, it does no harm.
    IfBroken,
}

/// The way of a call, or of several calls about one lock, to the server that has the lock.
pub(crate) struct Route {
    servers: Arc<Servers>,
    /// The slot of the lock in a cluster.
    slot: Option<Slot>,
    again: Again,
    /// How long the call is made again while a server takes it only later.
    until: Instant,
    /// Whether a call has reached the server that has the lock.
    has_arrived: bool,
    moves: u32,
    /// When the call was refused first, unless it has reached the server since.
    refused_since: Option<Instant>,
    /// Number of times in a row that the call was to be made later, up to [`MAX_DOUBLINGS`].
    laters: u32,
    is_repeated: bool,
    /// The server to which the next call is redirected, and no other call.
    next: Option<Arc<Node>>,
}

impl Route {
    /// Returns the server for the next call.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn node(&mut self) -> Result<Arc<Node>, Failure> {
        if let Some(next) = self.next.take() {
            return Ok(next);
        }
        match (&self.servers.all, self.slot) {
            (All::One(node), _) => Ok(Arc::clone(node)),
            (All::Cluster(cluster), Some(slot)) => {
                let is_connected = |node: &Node| {
                    let open = node.connections.open_here();
                    open.is_some_and(|line| !line.connection().is_silent_for(SILENT))
                };
                cluster.server(slot, is_connected).await.map_err(Failure::Refused)
            }
            (All::Cluster(_), None) => unreachable!("a cluster has slots"),
        }
    }

    /// Returns the connection for the next call.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn line(&mut self) -> Result<Arc<Line>, Failure> {
        self.node().await?.connections.here().await
    }

    /// Records that a call has reached the server that has the lock.
    pub(crate) fn arrived(&mut self) {
        self.has_arrived = true;
        (self.moves, self.laters, self.refused_since) = (0, 0, None);
    }

    /// Returns whether a call that has failed is on its way to another server, for no longer than a call may take.
    ///
    /// A call that a cluster sends on has its answer within milliseconds. Without a primary, an answer to an earlier call is
    /// needed: otherwise the failure is all that is known of the lock.
    pub(crate) fn is_on_its_way(&mut self, failure: &Failure) -> bool {
        let is_sent_on = matches!(failure, Failure::Redirected(..));
        if !(is_sent_on || (self.has_arrived && self.is_for_another_server(failure))) {
            return false;
        }
        self.refused_since.get_or_insert_with(Instant::now);
        !self.is_failing()
    }

    /// Returns whether the call has been refused by one server after the other for longer than a call may take.
    fn is_failing(&self) -> bool {
        let limit = self.servers.config().response_timeout;
        self.refused_since.is_some_and(|since| (since + limit).has_passed())
    }

    /// Extends the time for which a call is made again that a server takes only later.
    pub(crate) fn extend(&mut self, until: Instant) {
        self.until = self.until.max(until);
    }

    /// Returns after which pause a call with several keys is made again that has failed; `None` if it is not.
    pub(crate) fn again_after(&mut self, failure: &Failure) -> Option<Duration> {
        match failure {
            // The other server takes such a call only once it has all keys of the slot.
            Failure::Redirected(Redirection::Ask { .. }, _) => self.later(PAUSE),
            failure => self.again_with_one_key_after(failure),
        }
    }

    /// Returns after which pause a call with one key is made again that has failed; `None` if it is not.
    pub(crate) fn again_with_one_key_after(&mut self, failure: &Failure) -> Option<Duration> {
        match failure {
            Failure::Redirected(redirection, _) => self.redirected(redirection),
            // A replica is named as the primary until the other servers have agreed on another one.
            failure if self.is_for_another_server(failure) => {
                let is_first = self.refused_since.is_none();
                self.after(PAUSE_IF_DOWN).map(|pause| if is_first { Duration::ZERO } else { pause })
            }
            // The connection was unusable, perhaps for a long time: another one is tried once.
            Failure::GivenUp(_) if !self.is_repeated => {
                self.is_repeated = true;
                Some(Duration::ZERO)
            }
            Failure::Disconnected(_) if self.again == Again::IfBroken && !self.is_repeated => {
                self.is_repeated = true;
                Some(Duration::ZERO)
            }
            _ => None,
        }
    }

    /// Returns whether another server takes the call that has failed, or will before long.
    pub(crate) fn is_for_another_server(&self, failure: &Failure) -> bool {
        let may_fail_over = || match &self.servers.all {
            All::One(node) => node.connections.server().may_fail_over(),
            All::Cluster(_) => true,
        };
        matches!(failure, Failure::Redirected(..)) || (failure.is_of_no_primary() && may_fail_over())
    }

    /// Returns after which pause a call is made again that a server of a cluster has refused; `None` if it is not.
    pub(crate) fn redirected(&mut self, redirection: &Redirection) -> Option<Duration> {
        let All::Cluster(cluster) = &self.servers.all else { return None };
        self.refused_since.get_or_insert_with(Instant::now);
        match redirection {
            Redirection::Later => self.later(PAUSE),
            Redirection::Down => {
                cluster.is_down();
                self.later(PAUSE_IF_DOWN)
            }
            Redirection::Moved { slot, to } => {
                cluster.moved(*slot, to).ok()?;
                self.sent_on()
            }
            Redirection::Ask { to } => {
                self.next = Some(cluster.asking(self.slot?, to).ok()?);
                self.sent_on()
            }
        }
    }

    /// Counts that a call is sent on to another server. Servers that send it back and forth do not agree yet.
    fn sent_on(&mut self) -> Option<Duration> {
        if self.moves >= MAX_MOVES {
            return self.later(PAUSE);
        }
        self.moves += 1;
        Some(Duration::ZERO)
    }

    fn later(&mut self, pause: [Duration; 2]) -> Option<Duration> {
        let doubled = pause.map(|pause| pause * (1 << self.laters));
        self.laters = MAX_DOUBLINGS.min(self.laters + 1);
        self.after(doubled)
    }

    fn after(&mut self, pause: [Duration; 2]) -> Option<Duration> {
        self.moves = 0;
        let now = Instant::now();
        self.refused_since.get_or_insert(now);
        let left = self.until.saturating_duration_since(now);
        (!left.is_zero()).then(|| between(pause).min(left))
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("slot", &self.slot).field("moves", &self.moves).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// While the servers do not agree, or a waiter outlasts many moves of its slot.
    #[test]
    fn a_call_that_is_sent_on_again_and_again_is_made_with_pauses_until_its_limit() {
        let config = Config::from_url("redis://127.0.0.1:1?response_timeout=50ms").expect("valid");
        let settings = ClusterSettings {
            seeds: vec![config.clone()],
            servers: config,
            addresses: HashMap::default(),
            store: "",
            consequence: "",
            consequence_of_one: "",
        };
        let servers = Servers::cluster(settings, GroupCommit::Never).expect("valid");
        let key = LockKey::new("k").expect("valid");
        let mut route = servers.route(&key, Again::IfNotApplied);
        let mut pauses = 0;
        for number in 0..40 * MAX_MOVES {
            let to = ("127.0.0.1".to_owned(), if number % 2 == 0 { 1 } else { 2 });
            let moved = Redirection::Moved { slot: Slot::of(key.stored()), to };
            let again = route.redirected(&moved).expect("it is within its limit");
            pauses += u32::from(!again.is_zero());
        }
        assert!((30..=40).contains(&pauses), "{pauses}");
        std::thread::sleep(Duration::from_millis(60));
        let again = |route: &mut Route| {
            let to = ("127.0.0.1".to_owned(), 1);
            route.redirected(&Redirection::Moved { slot: Slot::of(key.stored()), to })
        };
        assert!((0..=MAX_MOVES).any(|_| again(&mut route).is_none()), "it is over");
    }
}
