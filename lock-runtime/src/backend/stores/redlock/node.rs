//! One node: its connections, and the operations of many locks that share its round trips.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, RedisWrite};
use tokio::sync::oneshot;

use super::{
    super::redis::{
        batch::{Batcher, SendBatch},
        config::{Config, GroupCommit},
        error::{self, Failure},
        names::{self, FORMAT},
        net::{Connection, Connections, Pushes, Script, Server, Service, fitness},
        node::fence_constants,
    },
    claim::Claim,
    hints::Hints,
    leftovers::{Leftovers, Owed, Repeats},
};
use crate::{
    LockError, LockErrorKind, LockKey,
    backend::{BoxFuture, common::host},
    sync::{join_all, lock},
    time::clock::Instant,
};

/// How long a counter of fences is kept after the last grant or renewal of its lock.
const FENCE_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// How much longer than the longest lease a node without its data must have run before it votes: longer than fences are
/// ahead of the time, and the clocks of the nodes differ a little.
const VOTE_MARGIN: Duration = Duration::from_secs(2);
/// Upper bound on how far a fence is ahead of a node's time because of a proposal.
const MOST_AHEAD: Duration = Duration::from_secs(1);

/// One node, as this process sees it.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) connections: Arc<Connections<Voter>>,
}

impl Node {
    pub(super) fn new(
        config: Config,
        hints: &Arc<Hints>,
        number: usize,
        run_ids: &RunIds,
    ) -> Result<Self, LockError> {
        let address = config.address();
        let server = Server::new(config, "it has no vote")?;
        let voter = Voter {
            address,
            process: format!("{}@{}", std::process::id(), host::name()).into(),
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
    /// The part that all its owners share.
    process: Arc<str>,
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

impl Service for Voter {
    type Line = Line;

    fn pushes(&self) -> Arc<dyn Pushes> {
        Arc::clone(&self.hints) as Arc<dyn Pushes>
    }

    async fn begin(&self, connection: Arc<Connection>, info: &str) -> Result<Arc<Line>, LockError> {
        self.check_identity(info)?;
        if !self.scripts_are_known.load(Ordering::Acquire) {
            // In one round trip, because a renewal may be waiting for it.
            let loads: Vec<_> = Kind::SCRIPTS.iter().map(|kind| kind.script().load()).collect();
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
        let process = Arc::clone(&self.process);
        let send_batch: Arc<SendBatch<Operation>> = Arc::new(move |connection, operations| {
            let process = Arc::clone(&process);
            Box::pin(async move { send(&connection, &process, operations).await })
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

    fn release(self: Arc<Self>, owed: Vec<Owed>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Ok(line) = self.here().await else { return };
            let put = owed.into_iter().filter_map(|owed| {
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
        if matches!(kind, Kind::Acquire | Kind::Join) {
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

/// A question to a node about one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// To take the lock, if it is free: with a fence, if it was taken.
    Acquire,
    /// To raise the counter of fences to that of the claim.
    Raise,
    /// To renew the lease, if the node still has it.
    Renew,
    /// To take over a lease that the node does not have.
    Join,
    Release,
}

static ACQUIRE: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/acquire.lua")));
static RAISE: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/raise.lua")));
static RENEW: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/renew.lua")));
static JOIN: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/join.lua")));
static RELEASE: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/release.lua")));

fn script(text: &str) -> Script {
    let fence = fence_constants(FENCE_RETENTION);
    let ours = format!("local OWNERS, AHEAD_US = '{OWNERS}{FORMAT}', {}", MOST_AHEAD.as_micros());
    Script::of(&[&fence, &ours, include_str!("scripts/common.lua"), text])
}

/// The beginning of all owners of this library.
const OWNERS: &str = "r";

impl Kind {
    const SCRIPTS: [Self; 5] = [Self::Acquire, Self::Raise, Self::Renew, Self::Join, Self::Release];

    fn script(self) -> &'static Script {
        match self {
            Self::Acquire => &ACQUIRE,
            Self::Raise => &RAISE,
            Self::Renew => &RENEW,
            Self::Join => &JOIN,
            Self::Release => &RELEASE,
        }
    }
}

/// The receiver of an answer; see the scripts for its meaning.
pub(super) type Answered = oneshot::Receiver<Result<i64, Failure>>;

/// An operation that waits for the next round trip.
#[derive(Debug)]
pub(super) struct Operation {
    what: What,
    caller: Caller,
}

#[derive(Debug)]
struct Caller {
    answer: oneshot::Sender<Result<i64, Failure>>,
    owed: Option<Owed>,
}

#[derive(Debug)]
enum What {
    About(Kind, Claim),
    /// A command of subscriptions, and its channel.
    Subscription(&'static str, Arc<str>),
}

/// The operations of one kind under one prefix, which share a call.
struct Part {
    kind: Kind,
    claims: Vec<Claim>,
    callers: Vec<Caller>,
}

/// Sends a batch, and gives each caller its answer.
async fn send(connection: &Connection, process: &str, operations: Vec<Operation>) {
    let (mut calls, mut parts) = (Vec::<BoxFuture<'_, ()>>::new(), Vec::<Part>::new());
    for Operation { what, caller } in operations {
        match what {
            What::Subscription(command, channel) => {
                let mut call = redis::cmd(command);
                call.arg(&*channel);
                // If it fails, the waiter looks from time to time.
                calls.push(Box::pin(async move { _ = connection.call::<redis::Value>(&call).await }));
            }
            What::About(kind, claim) => {
                let shares =
                    |part: &&mut Part| part.kind == kind && part.claims[0].key.prefix() == claim.key.prefix();
                match parts.iter_mut().find(shares) {
                    Some(part) => {
                        part.claims.push(claim);
                        part.callers.push(caller);
                    }
                    None => parts.push(Part { kind, claims: vec![claim], callers: vec![caller] }),
                }
            }
        }
    }
    // In the order in which they were put, as far as it matters: a release follows its acquisition.
    parts.sort_by_key(|part| part.kind == Kind::Release);
    for part in parts {
        calls.push(Box::pin(part.send(connection, process)));
    }
    join_all(calls).await;
}

impl Part {
    async fn send(mut self, connection: &Connection, process: &str) {
        let mut answers = Answers::NotExecuted;
        for _ in 0..ATTEMPTS {
            // A caller that has gone releases what it may have taken, and its release is on the way.
            let is_wanted = |caller: &Caller| self.kind != Kind::Acquire || !caller.answer.is_closed();
            let both = self.claims.into_iter().zip(self.callers);
            (self.claims, self.callers) = both.filter(|(_, caller)| is_wanted(caller)).unzip();
            if self.claims.is_empty() {
                return;
            }
            answers = if connection.is_usable() {
                ask(connection, process, self.kind, &self.claims).await
            } else {
                Answers::Failed(Failure::not_sent())
            };
            if !matches!(answers, Answers::NotExecuted) {
                break;
            }
        }
        let count = self.claims.len();
        let answers = match answers {
            Answers::Each(answers) => answers.into_iter().map(Ok).collect(),
            // A script that fails has done what it did until then, and each question may be repeated: alone, each gets
            // its own answer.
            Answers::Failed(Failure::Refused(_)) if count > 1 => {
                let mut answers = Vec::with_capacity(count);
                for claim in self.claims.chunks(1) {
                    answers.push(match ask(connection, process, self.kind, claim).await {
                        Answers::Each(answers) => Ok(answers[0]),
                        Answers::Failed(failure) => Err(failure),
                        Answers::NotExecuted => Err(Failure::too_late()),
                    });
                }
                answers
            }
            Answers::Failed(failure) => vec![Err(failure); count],
            Answers::NotExecuted => vec![Err(Failure::too_late()); count],
        };
        for (Caller { answer: caller, owed }, answer) in self.callers.into_iter().zip(answers) {
            if let (Ok(was_held), Some(owed)) = (&answer, owed) {
                owed.answered(*was_held == 1, connection.id());
            }
            let _ = caller.send(answer);
        }
    }
}

/// How often a question is asked that was not executed.
const ATTEMPTS: u32 = 3;

/// The outcome of one call about many locks.
enum Answers {
    Each(Vec<i64>),
    /// Nothing was done, and the next attempt may succeed: the server did not know the script, or its clock is known
    /// better now.
    NotExecuted,
    Failed(Failure),
}

/// Asks one question about many locks.
async fn ask(connection: &Connection, process: &str, kind: Kind, claims: &[Claim]) -> Answers {
    let sent = Instant::now();
    let call = call(connection, process, kind, claims);
    let answers = match connection.run_once::<Vec<i64>>(kind.script(), &call).await {
        Ok(Some(answers)) => answers,
        Ok(None) => return Answers::NotExecuted,
        Err(failure) => return Answers::Failed(failure),
    };
    let Some((time, answers)) = answers.split_first() else { return Answers::Failed(unexpected()) };
    let Ok(time) = u64::try_from(*time) else { return Answers::Failed(unexpected()) };
    if answers.is_empty() {
        connection.clock().replace(Instant::now(), time);
        return Answers::NotExecuted;
    }
    if answers.len() != claims.len() {
        return Answers::Failed(unexpected());
    }
    connection.clock().learn(sent, Instant::now(), time);
    Answers::Each(answers.to_vec())
}

fn call(connection: &Connection, process: &str, kind: Kind, claims: &[Claim]) -> Cmd {
    let count = claims.len();
    let mut call = kind.script().call_with_room(2 * count, 4 + 5 * count, 128 + 256 * count);
    for claim in claims {
        call.arg(claim.key.stored());
        call.write_arg_fmt(names::beside(&claim.key, "fence"));
    }
    let limit = claims.iter().map(|claim| claim.limit).min().unwrap_or(Instant::FAR_FUTURE);
    call.arg(connection.clock().at(limit));
    for claim in claims {
        // As the nodes know it, `r1x:<pid>@<host>:<token>`: store, format and mode, process, and token.
        call.write_arg_fmt(format_args!("{OWNERS}{}", names::owner(claim.mode, process, claim.owner)));
        call.arg(names::millis(claim.ttl)).arg(claim.fence);
    }
    call
}

/// Returns the channel on which a node announces releases of a lock; see `release.lua`.
pub(super) fn channel(key: &LockKey) -> Arc<str> {
    names::beside(key, "released").to_string().into()
}

fn unexpected() -> Failure {
    Failure::Refused(error::unexpected("a question to a node"))
}
