//! One node: its connections, and when it has a vote.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{PushInfo, PushKind, Value};
use tokio::sync::oneshot;

use super::{
    super::{
        batch::{Batcher, SendBatch, join_all},
        config::{Config, GroupCommit},
        error::Failure,
        net::{Connection, Connections, Pushes, Script, Server, Service, fitness},
    },
    claim::Claim,
    leftovers::{Leftovers, Owed, Repeats},
    operation::{self, Answered, Caller, Operation, What},
    protocol::{Kind, Protocol},
};
use crate::{
    LockError, LockErrorKind,
    backend::{BoxFuture, common::hints::Hints},
    sync::lock,
    time::clock::Instant,
};

/// How much longer than the longest lease a node without its data must have run before it votes: longer than fences are
/// ahead of the time, and the clocks of the nodes differ a little.
const VOTE_MARGIN: Duration = Duration::from_secs(2);

/// One node, as this process sees it.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) connections: Arc<Connections<Voter>>,
}

impl Node {
    pub(super) fn new(
        config: Config,
        protocol: &Arc<dyn Protocol>,
        hints: &Arc<Hints>,
        number: usize,
        run_ids: &RunIds,
    ) -> Result<Self, LockError> {
        let address = config.address();
        let server = Server::new(config, protocol.outage_means())?;
        let voter = Voter {
            address,
            protocol: Arc::clone(protocol),
            hints: Arc::clone(hints),
            leftovers: Leftovers::default(),
            number,
            run_ids: Arc::clone(run_ids),
            scripts_are_known: AtomicBool::new(false),
        };
        Ok(Self { connections: Arc::new(Connections::new(server, voter)) })
    }

    pub(super) fn address(&self) -> &str {
        self.connections.service().address()
    }

    pub(super) fn timeout(&self) -> Duration {
        self.connections.server().config().response_timeout
    }
}

/// The run ids of the nodes' servers, by the numbers of the nodes, as far as known.
pub(super) type RunIds = Arc<Mutex<HashMap<usize, Box<str>>>>;

/// The service of a node: it answers questions about locks, and its answers are votes.
#[derive(Debug)]
pub(super) struct Voter {
    address: String,
    protocol: Arc<dyn Protocol>,
    hints: Arc<Hints>,
    pub(super) leftovers: Leftovers,
    number: usize,
    run_ids: RunIds,
    /// Whether a server has accepted the scripts from this user.
    scripts_are_known: AtomicBool,
}

impl Voter {
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Refuses the server of another node under another address: it would have two votes.
    fn check_identity(&self, info: &str) -> Result<(), LockError> {
        let mut run_ids = lock(&self.run_ids);
        // Otherwise two servers that swapped their addresses would keep each other out.
        run_ids.remove(&self.number);
        let Some(run_id) = fitness::run_id(info) else { return Ok(()) };
        if run_ids.iter().any(|(number, other)| *number != self.number && **other == *run_id) {
            return Err(LockError::new(
                LockErrorKind::InvalidOptions,
                format!(
                    "Redis at {} is the server of another node of this Redlock under another address; each node must be \
                     a server of its own",
                    self.address
                ),
            ));
        }
        run_ids.insert(self.number, run_id.into());
        Ok(())
    }
}

impl Pushes for Hints {
    fn take(&self, push: &PushInfo) {
        if push.kind == PushKind::Message
            && let Some(Value::BulkString(channel)) = push.data.first()
            && let Ok(channel) = std::str::from_utf8(channel)
        {
            self.tell(channel);
        }
    }

    fn hang_up(&self, _: u64) {}
}

impl Service for Voter {
    type Line = Line;

    fn pushes(&self) -> Arc<dyn Pushes> {
        Arc::clone(&self.hints) as Arc<dyn Pushes>
    }

    async fn begin(&self, connection: Arc<Connection>, info: &str) -> Result<Arc<Line>, LockError> {
        self.check_identity(info)?;
        if !self.scripts_are_known.load(Ordering::Acquire) {
            // In one round trip, because a renewal may be waiting for it.
            let loads: Vec<_> =
                Kind::ALL.iter().filter_map(|kind| self.protocol.script(*kind)).map(Script::load).collect();
            let (loader, failures) = (&connection, &Mutex::new(Vec::new()));
            let load = |call| -> BoxFuture<'_, ()> {
                Box::pin(async move {
                    if let Err(failure) = loader.call::<redis::Value>(call).await {
                        lock(failures).push(failure);
                    }
                })
            };
            join_all(loads.iter().map(load).collect()).await;
            if let Some(failure) = lock(failures).pop() {
                return Err(failure.into_error());
            }
            self.scripts_are_known.store(true, Ordering::Release);
        }
        // Proposals of fences are made from the time of the nodes.
        let now = Instant::now();
        if let Some(time) = fitness::time(info) {
            connection.clock().learn(now, now, time);
        }
        let protocol = Arc::clone(&self.protocol);
        let send_batch: Arc<SendBatch<Operation>> = Arc::new(move |connection, operations| {
            let protocol = Arc::clone(&protocol);
            Box::pin(async move { operation::send(&connection, &*protocol, operations).await })
        });
        Ok(Arc::new(Line {
            batcher: Batcher::start(&connection, GroupCommit::Always, &send_batch),
            connection,
            opened: Instant::now(),
            uptime: fitness::uptime(info),
            subscribed: Mutex::default(),
        }))
    }
}

impl Repeats for Connections<Voter> {
    fn leftovers(&self) -> &Leftovers {
        &self.service().leftovers
    }

    fn repeat(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Ok(line) = self.here().await else { return };
            let node: Arc<dyn Repeats> = self;
            let put = Leftovers::take(&node).into_iter().filter_map(|owed| {
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
pub(super) struct Line {
    connection: Arc<Connection>,
    batcher: Batcher<Operation>,
    opened: Instant,
    /// How long the server had run when the connection was opened; `None` if it does not say.
    uptime: Option<Duration>,
    subscribed: Mutex<HashMap<Arc<str>, usize>>,
}

impl AsRef<Connection> for Line {
    fn as_ref(&self) -> &Connection {
        &self.connection
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("connection", &self.connection).finish_non_exhaustive()
    }
}

impl Line {
    pub(super) fn is_usable(&self) -> bool {
        self.connection.is_usable()
    }

    pub(super) fn id(&self) -> u64 {
        self.connection.id()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.connection.is_idle()
    }

    pub(super) async fn ping(&self) -> Result<(), Failure> {
        self.connection.call::<redis::Value>(&redis::cmd("PING")).await.map(drop)
    }

    /// Returns the node's time now, or an earlier one, in µs.
    pub(super) fn time(&self, now: Instant) -> u64 {
        self.connection.clock().at(now)
    }

    /// Returns how long the node has no vote, because it may have forgotten locks when it was started; `None` if it
    /// does not say when that was.
    pub(super) fn votes_in(&self, now: Instant, longest: Duration) -> Option<Duration> {
        let up = self.uptime? + now.saturating_duration_since(self.opened);
        Some((longest + VOTE_MARGIN).saturating_sub(up))
    }

    /// Puts an operation into the next batch, and returns the receiver of its answer. A release is owed until then.
    pub(super) fn put(&self, kind: Kind, claim: Claim, owed: Option<Owed>) -> Answered {
        if kind.has_limit() {
            claim.trail.put_over(claim.node, self.connection.id());
        }
        let (answer, answered) = oneshot::channel();
        // If the connection is gone, so is the answer.
        let _ =
            self.batcher.put(Operation { what: What::About(kind, claim), caller: Caller { answer, owed } });
        answered
    }

    /// Subscribes to a channel. What is put later is executed later.
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

    fn put_subscription(&self, command: &'static str, channel: &Arc<str>) {
        let what = What::Subscription(command, Arc::clone(channel));
        let caller = Caller { answer: oneshot::channel().0, owed: None };
        let _ = self.batcher.put(Operation { what, caller });
    }
}
