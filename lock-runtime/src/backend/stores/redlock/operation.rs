//! The operations of many locks that share the round trips of one node.

use std::{
    collections::HashMap,
    iter,
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
    /// To release what a refused attempt was granted. The lock was not held, so the waiting clients are not notified:
    /// they would wake each other again and again while a majority holds it.
    Withdraw,
}

static ACQUIRE: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/acquire.lua")));
static RAISE: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/raise.lua")));
static RENEW: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/renew.lua")));
static JOIN: LazyLock<Script> = LazyLock::new(|| script(include_str!("scripts/join.lua")));
static RELEASE: LazyLock<Script> = LazyLock::new(|| release(true));
static WITHDRAW: LazyLock<Script> = LazyLock::new(|| release(false));

fn script(text: &str) -> Script {
    let fence = fence_constants(FENCE_RETENTION);
    let ours = format!("local OWNERS, AHEAD_US = '{OWNERS}{FORMAT}', {}", MOST_AHEAD.as_micros());
    Script::of(&[&fence, &ours, include_str!("scripts/common.lua"), text])
}

fn release(notifies: bool) -> Script {
    script(&format!("local NOTIFIES = {notifies}\n{}", include_str!("scripts/release.lua")))
}

/// The beginning of all owners of this library.
const OWNERS: &str = "r";

impl Kind {
    pub(super) const ALL: [Self; 6] =
        [Self::Acquire, Self::Raise, Self::Renew, Self::Join, Self::Release, Self::Withdraw];

    /// Returns whether a node may not execute it after its limit, because it can begin a hold.
    pub(super) fn has_limit(self) -> bool {
        matches!(self, Self::Acquire | Self::Join)
    }

    /// Returns whether its question is repeated until the node has answered.
    pub(super) fn is_owed(self) -> bool {
        matches!(self, Self::Release | Self::Withdraw)
    }

    pub(super) fn script(self) -> &'static Script {
        match self {
            Self::Acquire => &ACQUIRE,
            Self::Raise => &RAISE,
            Self::Renew => &RENEW,
            Self::Join => &JOIN,
            Self::Release => &RELEASE,
            Self::Withdraw => &WITHDRAW,
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
    asked: Vec<(Claim, Caller)>,
}

/// Sends a batch, and gives each caller its answer.
pub(super) async fn send(connection: &Connection, process: &str, operations: Vec<Operation>) {
    let (mut calls, mut parts) = (Vec::<BoxFuture<'_, ()>>::new(), Vec::<Part>::new());
    // The number of the last part with an operation on this lock: those on one lock keep their order.
    let mut last = HashMap::<Arc<str>, usize>::new();
    for Operation { what, caller } in operations {
        match what {
            What::Subscription(command, channel) => {
                let mut call = redis::cmd(command);
                call.arg(&*channel);
                // If it fails, the waiter looks from time to time.
                calls.push(Box::pin(async move { _ = connection.call::<redis::Value>(&call).await }));
            }
            What::About(kind, claim) => {
                let last = last.entry(claim.key.stored_name()).or_default();
                let shares = |part: &Part| part.kind == kind && part.prefix() == claim.key.prefix();
                if let Some(further) = parts[*last..].iter().position(shares) {
                    *last += further;
                } else {
                    *last = parts.len();
                    parts.push(Part { kind, asked: Vec::new() });
                }
                parts[*last].asked.push((claim, caller));
            }
        }
    }
    for part in parts {
        calls.push(Box::pin(part.send(connection, process)));
    }
    join_all(calls).await;
}

impl Part {
    fn prefix(&self) -> &str {
        self.asked.first().map_or("", |(claim, _)| claim.key.prefix())
    }

    async fn send(mut self, connection: &Connection, process: &str) {
        let kind = self.kind;
        // The limit of the first is that of all, so one whose limit has passed would keep the others out.
        let late = |(claim, _): &mut (Claim, Caller)| kind.has_limit() && claim.limit.has_passed();
        for (_, caller) in self.asked.extract_if(.., late) {
            caller.tell(Err(Failure::not_sent()), connection);
        }
        let mut answers = Answers::NotExecuted;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                self.asked.retain(|(claim, caller)| is_asked_again(kind, claim, caller));
            }
            if self.asked.is_empty() {
                return;
            }
            answers = if connection.is_usable() {
                ask(connection, process, kind, self.asked.iter().map(|(claim, _)| claim)).await
            } else {
                Answers::Failed(Failure::not_sent())
            };
            if !matches!(answers, Answers::NotExecuted) {
                break;
            }
        }
        match answers {
            Answers::Each(answers) => {
                for ((_, caller), answer) in self.asked.into_iter().zip(answers) {
                    caller.tell(Ok(answer), connection);
                }
            }
            // A script that fails has done what it did until then, and each question may be repeated: alone, each gets
            // its own answer.
            Answers::Failed(Failure::Refused(_)) if self.asked.len() > 1 => {
                for (claim, caller) in self.asked {
                    if is_asked_again(kind, &claim, &caller) {
                        let answer = ask(connection, process, kind, iter::once(&claim)).await;
                        caller.tell(answer.alone(), connection);
                    }
                }
            }
            failed => {
                let failure = failed.alone().err().unwrap_or_else(unexpected);
                for (_, caller) in self.asked {
                    caller.tell(Err(failure.clone()), connection);
                }
            }
        }
    }
}

/// Returns whether to ask a question again that may not have been executed.
///
/// A caller that has gone has sent its release already. First the acquisition is marked, so that a release which comes
/// in between is repeated.
fn is_asked_again(kind: Kind, claim: &Claim, caller: &Caller) -> bool {
    if kind.has_limit() {
        claim.trail.put_again(claim.node);
    }
    kind != Kind::Acquire || !caller.answer.is_closed()
}

impl Caller {
    fn tell(self, answer: Result<i64, Failure>, connection: &Connection) {
        if let (Ok(was_held), Some(owed)) = (&answer, self.owed) {
            owed.answered(*was_held == 1, connection.id());
        }
        let _ = self.answer.send(answer);
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

impl Answers {
    /// Returns the answer to a question about one lock.
    fn alone(self) -> Result<i64, Failure> {
        match self {
            Self::Each(answers) => answers.first().copied().ok_or_else(unexpected),
            Self::NotExecuted => Err(Failure::too_late()),
            Self::Failed(failure) => Err(failure),
        }
    }
}

/// Asks one question about many locks.
async fn ask<'a>(
    connection: &Connection,
    process: &str,
    kind: Kind,
    claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
) -> Answers {
    let (sent, count) = (Instant::now(), claims.len());
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
    if answers.len() != count {
        return Answers::Failed(unexpected());
    }
    connection.clock().learn(sent, Instant::now(), time);
    Answers::Each(answers.to_vec())
}

fn call<'a>(
    connection: &Connection,
    process: &str,
    kind: Kind,
    claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
) -> Cmd {
    let count = claims.len();
    let mut call = kind.script().call_with_room(2 * count, 4 + 5 * count, 128 + 256 * count);
    for claim in claims.clone() {
        call.arg(claim.key.stored());
        call.write_arg_fmt(names::beside(&claim.key, "fence"));
    }
    let limit = claims.clone().map(|claim| claim.limit).min().unwrap_or(Instant::FAR_FUTURE);
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
