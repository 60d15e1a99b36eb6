//! The operations of many locks that share the round trips of one node.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use redis::{Cmd, RedisWrite};
use tokio::sync::oneshot;

use super::{
    super::redis::{
        batch::join_all,
        error::{self, Failure},
        names::{self, FORMAT},
        net::{Connection, Script},
        node::fence_constants,
    },
    claim::Claim,
    leftovers::Owed,
};
use crate::{backend::BoxFuture, time::clock::Instant};

/// How long a counter of fences is kept after the last grant or renewal of its lock.
const FENCE_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// Upper bound on how far a fence is ahead of a node's time because of a proposal.
const MOST_AHEAD: Duration = Duration::from_secs(1);

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
    pub(super) const SCRIPTS: [Self; 5] =
        [Self::Acquire, Self::Raise, Self::Renew, Self::Join, Self::Release];

    pub(super) fn script(self) -> &'static Script {
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
    pub(super) what: What,
    pub(super) caller: Caller,
}

#[derive(Debug)]
pub(super) struct Caller {
    pub(super) answer: oneshot::Sender<Result<i64, Failure>>,
    pub(super) owed: Option<Owed>,
}

#[derive(Debug)]
pub(super) enum What {
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
pub(super) async fn send(connection: &Connection, process: &str, operations: Vec<Operation>) {
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

fn unexpected() -> Failure {
    Failure::Refused(error::unexpected("a question to a node"))
}
