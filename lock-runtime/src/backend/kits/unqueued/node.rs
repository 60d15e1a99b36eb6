//! One node: its connections, and when it has a vote.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::Value;
use tokio::{sync::oneshot, task::JoinSet};

use super::{
    claim::Claim,
    fleet::{FleetSettings, ServerFacts},
    inbox::Inbox,
    operation::{self, Answered, Caller, Operation},
    pending_releases::{PendingRelease, PendingReleases, Repeats},
    protocol::{Kind, Protocol},
};
use crate::{
    LockError,
    backend::{
        BoxFuture, FindingCode,
        common::settings::invalid,
        kits::redis::{
            batch::{Batcher, GroupCommit, SendBatch},
            error::Failure,
            net::{Connection, Connections, Pushes, Server, Service, fitness},
        },
    },
    sync::lock,
    time::clock::{self, Instant},
};

/// Time for which a connection is kept if the settings of its server, or of the user, leave the server without a vote.
/// Only a new connection shows whether these settings were corrected.
const KEPT_WITHOUT_VOTE: Duration = Duration::from_secs(1);

/// Upper bound on the prefixes of whose revocations a process is notified over one connection. The holders of locks under
/// further prefixes learn of a revocation at their next renewal.
const MAX_PREFIXES: usize = 256;

/// One node, as this process sees it.
pub(super) type Node = Connections<NodeService>;

/// The servers at the other ends of the open connections, as far as known: the number of the node, the connection, and
/// the run id of the server.
pub(super) type Servers = Arc<Mutex<Vec<(usize, Weak<Connection>, Box<str>)>>>;

/// The state that this process needs to ask one node about locks. The answers of the node are votes.
#[derive(Debug)]
pub(super) struct NodeService {
    address: String,
    protocol: Arc<dyn Protocol>,
    inbox: Arc<Inbox>,
    pub(super) pending_releases: PendingReleases,
    number: usize,
    servers: Servers,
    rules: Option<FleetSettings>,
    /// The last warning, and the run id of its server.
    warned: Mutex<(Option<Box<str>>, String)>,
    /// Whether a server has accepted the scripts from this user.
    scripts_are_known: AtomicBool,
}

impl NodeService {
    pub(super) fn new(
        server: &Server,
        protocol: &Arc<dyn Protocol>,
        inbox: &Arc<Inbox>,
        number: usize,
        servers: &Servers,
        rules: Option<FleetSettings>,
    ) -> Self {
        Self {
            address: server.config().address(),
            protocol: Arc::clone(protocol),
            inbox: Arc::clone(inbox),
            pending_releases: PendingReleases::default(),
            number,
            servers: Arc::clone(servers),
            rules,
            warned: Mutex::default(),
            scripts_are_known: AtomicBool::new(false),
        }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Refuses a server to which another node has an open connection, because that server would have two votes.
    fn check_identity(&self, connection: &Arc<Connection>, info: &str) -> Result<(), LockError> {
        let mut servers = lock(&self.servers);
        // Two servers may have swapped their addresses, so a server counts only while a connection to it is open. A
        // connection that was given up is open until its last call has ended: that call may still bring a vote.
        servers.retain(|(_, open, _)| open.upgrade().is_some_and(|open| !open.is_gone()));
        let Some(run_id) = fitness::run_id(info) else { return Ok(()) };
        if servers.iter().any(|(number, _, other)| *number != self.number && **other == *run_id) {
            return Err(invalid(format!(
                "Redis at {} is the server of another node of this Redlock under another address; each node must be a \
                 server of its own",
                self.address
            ))
            .with_fault(FindingCode::SameServer));
        }
        servers.push((self.number, Arc::downgrade(connection), run_id.into()));
        Ok(())
    }

    /// Returns those properties of a new connection's server that the rules need.
    async fn look_at(&self, connection: &Connection, info: &str) -> Result<ServerFacts, LockError> {
        let mut shown = ServerFacts::by(info);
        if self.rules.is_some_and(|rules| rules.durable) && shown.has_log != Some(false) {
            let mut question = redis::cmd("CONFIG");
            question.arg("GET").arg("appendfsync");
            shown.fsync = match connection.call::<HashMap<String, String>>(&question).await {
                Ok(mut settings) => settings.remove("appendfsync"),
                // The permission for this command is optional, and some services do not have the command.
                Err(Failure::Refused(_)) => None,
                Err(failure) => return Err(failure.into_error()),
            };
        }
        Ok(shown)
    }

    /// Warns of a server without a vote, or of a server that does not show whether it persists every write. A warning
    /// is not logged if the previous one had the same text and was about the same server.
    fn warn(&self, info: &str, warning: String) {
        let warning = (fitness::run_id(info).map(Box::from), warning);
        let mut warned = lock(&self.warned);
        if *warned != warning {
            tracing::warn!("{}", warning.1);
            *warned = warning;
        }
    }

    /// Subscribes to the revocations under the prefix of a lock, before a question that begins or renews a hold. The connection
    /// of a new hold is that of the holder's runtime, and the subscription is executed before the node grants the lock. The
    /// connection of the renewals is that of the library's own thread, which no holder blocks.
    ///
    /// The subscription remains for as long as the connection, because it costs the node nothing until a lock is revoked, and
    /// another command for each hold would cost more.
    pub(super) fn listen(&self, line: &Line, kind: Kind, claim: &Claim) {
        if matches!(kind, Kind::Acquire | Kind::Renew) {
            let prefix = claim.id.key.prefix();
            line.listen(prefix, || self.protocol.revocations(prefix));
        }
    }

    /// Returns an error if this kind of question needs a vote and the node has none. A question that can begin a hold
    /// needs a vote, because a node that has lost its data could grant a lock that it has granted to another client.
    pub(super) fn check_vote(&self, line: &Line, kind: Kind) -> Result<(), Failure> {
        if !kind.has_limit() {
            return Ok(());
        }
        self.lacks_vote(line).map_or(Ok(()), |error| Err(Failure::Refused(error)))
    }

    /// Returns the reason why the node has no vote, if it has none.
    pub(super) fn lacks_vote(&self, line: &Line) -> Option<LockError> {
        let age = Instant::now().saturating_duration_since(line.opened);
        self.rules?.refuse(&line.shown, age, &self.address)
    }

    /// Returns the warning to the operator about the node, if there is one.
    pub(super) fn warning(&self, line: &Line) -> Option<String> {
        self.rules?.warning(&line.shown, &self.address)
    }
}

impl Service for NodeService {
    type Line = Line;

    fn pushes(&self) -> Arc<dyn Pushes> {
        Arc::clone(&self.inbox) as Arc<dyn Pushes>
    }

    async fn begin(&self, connection: Arc<Connection>, info: &str) -> Result<Arc<Line>, LockError> {
        self.check_identity(&connection, info)?;
        if !self.scripts_are_known.load(Ordering::Acquire) {
            // The scripts are loaded in one round trip, because a renewal may be waiting for this connection.
            let mut loads = JoinSet::new();
            for script in Kind::ALL.iter().filter_map(|kind| self.protocol.script(*kind)) {
                let connection = Arc::clone(&connection);
                loads.spawn(async move { connection.call::<Value>(&script.load()).await });
            }
            for loaded in loads.join_all().await {
                loaded.map_err(Failure::into_error)?;
            }
            self.scripts_are_known.store(true, Ordering::Release);
        }
        let shown = self.look_at(&connection, info).await?;
        if self.rules.is_some_and(|rules| rules.refuse_for_good(&shown, &self.address).is_some()) {
            let connection = Arc::downgrade(&connection);
            tokio::spawn(async move {
                clock::sleep_until(Instant::now() + KEPT_WITHOUT_VOTE).await;
                if let Some(connection) = connection.upgrade() {
                    connection.give_up("its server has no vote, and may have been set right");
                }
            });
        }
        if let Some(warning) = self.rules.and_then(|rules| rules.warning(&shown, &self.address)) {
            self.warn(info, warning);
        }
        // The server's clock is estimated at once, because fences are proposed by the nodes' time.
        let now = Instant::now();
        if let Some(time) = fitness::time(info) {
            connection.clock().learn(now, now, time);
        }
        let protocol = Arc::clone(&self.protocol);
        let send_batch: Arc<SendBatch<Operation>> = Arc::new(move |connection, operations| {
            Box::pin(operation::send(connection, Arc::clone(&protocol), operations))
        });
        Ok(Arc::new(Line {
            batcher: Batcher::start(&connection, GroupCommit::Always, &send_batch),
            connection,
            opened: Instant::now(),
            shown,
            subscribed: Mutex::default(),
            listens: Mutex::default(),
        }))
    }
}

impl Repeats for Node {
    fn pending_releases(&self) -> &PendingReleases {
        &self.service().pending_releases
    }

    fn repeat(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Ok(line) = self.here().await else { return };
            let node: Arc<dyn Repeats> = self;
            let put = PendingReleases::take(&node).into_iter().filter_map(|owed| {
                let claim = owed.claim()?.clone();
                Some(line.put(Kind::Release, claim, Some(owed)))
            });
            for answer in put.collect::<Vec<_>>() {
                let _ = answer.await;
            }
        })
    }
}

/// One connection to a node.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) connection: Arc<Connection>,
    batcher: Batcher<Operation>,
    opened: Instant,
    shown: ServerFacts,
    subscribed: Mutex<HashMap<Arc<str>, usize>>,
    /// The prefixes of whose revocations this process is notified over this connection.
    listens: Mutex<HashSet<Box<str>>>,
}

impl AsRef<Connection> for Line {
    fn as_ref(&self) -> &Connection {
        &self.connection
    }
}

impl Line {
    pub(super) async fn ping(&self) -> Result<(), Failure> {
        self.connection.call::<Value>(&redis::cmd("PING")).await.map(drop)
    }

    /// Puts an operation into the next batch, and returns the receiver of its answer. With `owed`, the release is
    /// repeated in the background until the node answers or the lease has ended.
    pub(super) fn put(&self, kind: Kind, claim: Claim, owed: Option<PendingRelease>) -> Answered {
        if kind.has_limit() {
            claim.unanswered.sent_over(claim.node, self.connection.id());
        }
        let (answer, answered) = oneshot::channel();
        // If the connection is gone, the operation is dropped, and the receiver gets an error.
        let _ = self.batcher.put(Operation::Ask(kind, claim, Caller { answer, owed }));
        answered
    }

    /// Subscribes to a channel. An operation that is put later is executed after the subscription.
    pub(super) fn subscribe(&self, channel: &Arc<str>) {
        let mut subscribed = lock(&self.subscribed);
        let count = subscribed.entry(Arc::clone(channel)).or_default();
        *count += 1;
        if *count == 1 {
            self.put_subscription("SUBSCRIBE", channel);
        }
    }

    pub(super) fn unsubscribe(&self, channel: &Arc<str>) {
        let mut subscribed = lock(&self.subscribed);
        let Some(count) = subscribed.get_mut(channel) else { return };
        *count -= 1;
        if *count == 0 {
            subscribed.remove(channel);
            self.put_subscription("UNSUBSCRIBE", channel);
        }
    }

    /// Subscribes to the channel of a prefix, unless this was done before. An operation that is put later is executed after
    /// the subscription.
    fn listen(&self, prefix: &str, channel: impl FnOnce() -> String) {
        let mut listens = lock(&self.listens);
        if !listens.contains(prefix) && listens.len() < MAX_PREFIXES {
            listens.insert(prefix.into());
            self.put_subscription("SUBSCRIBE", &channel().into());
        }
    }

    fn put_subscription(&self, command: &'static str, channel: &Arc<str>) {
        let _ = self.batcher.put(Operation::Subscription(command, Arc::clone(channel)));
    }
}
