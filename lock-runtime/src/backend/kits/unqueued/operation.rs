//! The operations on many locks that share the round trips to one node.

use std::{collections::HashMap, iter, sync::Arc};

use redis::{Cmd, Value};
use tokio::sync::oneshot;

use super::{
    claim::Claim,
    pending_releases::PendingRelease,
    protocol::{Kind, Protocol},
};
use crate::{
    backend::{
        BoxFuture,
        kits::redis::{
            batch::join_all,
            error::{self, Failure},
            format,
            net::{Connection, Script},
        },
    },
    time::clock::Instant,
};

/// The receiver of an answer; see the scripts for its meaning.
pub(super) type Answered = oneshot::Receiver<Result<i64, Failure>>;

/// An operation that waits for the next round trip.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "few operations are subscriptions")]
pub(super) enum Operation {
    Ask(Kind, Claim, Caller),
    /// `SUBSCRIBE` or `UNSUBSCRIBE`, and the channel.
    Subscription(&'static str, Arc<str>),
}

#[derive(Debug)]
pub(super) struct Caller {
    pub(super) answer: oneshot::Sender<Result<i64, Failure>>,
    pub(super) owed: Option<PendingRelease>,
}

/// The operations of one kind under one prefix, which share a call.
struct Part {
    kind: Kind,
    asked: Vec<(Claim, Caller)>,
}

/// Sends a batch, and gives each caller its answer.
pub(super) async fn send(
    connection: Arc<Connection>,
    protocol: Arc<dyn Protocol>,
    operations: Vec<Operation>,
) {
    let (connection, protocol) = (&*connection, &*protocol);
    let (mut calls, mut parts) = (Vec::<BoxFuture<'_, ()>>::new(), Vec::<Part>::new());
    // For each lock, the number of the last part with an operation on the lock: operations on a lock keep their order.
    let mut last = HashMap::<Arc<str>, usize>::new();
    for operation in operations {
        match operation {
            Operation::Subscription(command, channel) => {
                let mut call = redis::cmd(command);
                call.arg(&*channel);
                // If the subscription fails, the waiter still asks after each pause.
                calls.push(Box::pin(async move { _ = connection.call::<Value>(&call).await }));
            }
            Operation::Ask(kind, claim, caller) => {
                let last = last.entry(claim.id.key.stored_name()).or_default();
                let shares = |part: &Part| part.kind == kind && part.prefix() == claim.id.key.prefix();
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
        calls.push(Box::pin(part.send(connection, protocol)));
    }
    join_all(calls).await;
}

impl Part {
    fn prefix(&self) -> &str {
        self.asked.first().map_or("", |(claim, _)| claim.id.key.prefix())
    }

    async fn send(mut self, connection: &Connection, protocol: &dyn Protocol) {
        let kind = self.kind;
        let mut answers = Ok(None);
        for attempt in 0..ATTEMPTS {
            // The earliest limit of a claim is the limit of the whole call. If one claim's limit had passed, the server
            // would refuse the other claims of the call, too.
            let late = |(claim, _): &mut (Claim, Caller)| kind.has_limit() && claim.limit.has_passed();
            for (_, caller) in self.asked.extract_if(.., late) {
                caller.tell(Err(Failure::not_sent()), connection);
            }
            if attempt > 0 {
                self.asked.retain(|(claim, caller)| is_asked_again(kind, claim, caller));
            }
            if self.asked.is_empty() {
                return;
            }
            answers = if connection.is_usable() {
                self.ask(connection, protocol).await
            } else {
                Err(Failure::not_sent())
            };
            if !matches!(answers, Ok(None)) {
                break;
            }
        }
        match answers {
            Ok(Some(answers)) => {
                for ((claim, caller), answer) in self.asked.into_iter().zip(answers) {
                    // The release was executed after the acquisition.
                    if answer.is_ok()
                        && kind.is_owed()
                        && claim.unanswered.was_sent_over(claim.node, connection.id())
                    {
                        claim.unanswered.ended_at(claim.node);
                    }
                    caller.tell(answer, connection);
                }
            }
            // A key that this user may not name fails the whole call before it begins. Asked alone, each claim gets its
            // own answer; all these calls take one more round trip.
            Err(Failure::Refused(error)) if !error.is_retryable() && self.asked.len() > 1 => {
                let again =
                    self.asked.into_iter().filter(|(claim, caller)| is_asked_again(kind, claim, caller));
                let alone = again.map(|(claim, caller)| -> BoxFuture<'_, ()> {
                    Box::pin(async move {
                        let answers = ask(connection, protocol, kind, iter::once(&claim)).await;
                        caller.tell(single(answers), connection);
                    })
                });
                join_all(alone.collect()).await;
            }
            failed => {
                let failure = failed.err().unwrap_or_else(Failure::too_late);
                for (_, caller) in self.asked {
                    caller.tell(Err(failure.clone()), connection);
                }
            }
        }
    }

    /// Asks the question once. The call of a renewal is dropped as soon as all its callers have gone. A call that is
    /// dropped after a while without an answer counts as unanswered, so a dead connection is given up early, and the
    /// next renewal does not wait on the dead connection until the timeout.
    async fn ask(&mut self, connection: &Connection, protocol: &dyn Protocol) -> Answers {
        if self.kind != Kind::Renew {
            let claims = self.asked.iter().map(|(claim, _)| claim);
            return ask(connection, protocol, self.kind, claims).await;
        }
        let asked = self.asked.iter_mut().map(|(claim, caller)| (&*claim, caller));
        let (claims, callers): (Vec<&Claim>, Vec<&mut Caller>) = asked.unzip();
        let all_gone = async {
            for caller in callers {
                caller.answer.closed().await;
            }
        };
        tokio::select! {
            biased;
            answers = ask(connection, protocol, Kind::Renew, claims.iter().copied()) => answers,
            () = all_gone => Err(Failure::not_sent()),
        }
    }
}

/// Returns whether to ask a question again after a call that perhaps did not execute the question.
///
/// An acquisition whose caller has gone is not asked again, because that caller has already sent its release. The
/// acquisition is marked as sent again before the check whether the caller has gone, so that a release which comes
/// between the mark and the check is repeated.
fn is_asked_again(kind: Kind, claim: &Claim, caller: &Caller) -> bool {
    if kind.has_limit() {
        claim.unanswered.sent_again(claim.node);
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

/// Upper bound on the attempts to ask a question that was not executed.
const ATTEMPTS: u32 = 3;

/// The outcome of one call about many locks: the answer about each lock.
///
/// The outcome is `Ok(None)` if nothing was done, and the next attempt may succeed: the server did not know the script,
/// or the answer corrected the estimate of the server's clock.
type Answers = Result<Option<Vec<Result<i64, Failure>>>, Failure>;

/// Returns the answer to a question about one lock.
fn single(answers: Answers) -> Result<i64, Failure> {
    let answers = answers?.ok_or_else(Failure::too_late)?;
    answers.into_iter().next().unwrap_or_else(|| Err(unexpected()))
}

/// Asks one question about many locks.
async fn ask<'a>(
    connection: &Connection,
    protocol: &dyn Protocol,
    kind: Kind,
    claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
) -> Answers {
    let (sent, count) = (Instant::now(), claims.len());
    let script = protocol.script(kind).ok_or_else(unexpected)?;
    let call = call(connection, protocol, script, claims);
    let Some(answers) = connection.run_once::<Vec<Value>>(script, &call).await? else { return Ok(None) };
    let Some((Value::Int(time), answers)) = answers.split_first() else { return Err(unexpected()) };
    let time = u64::try_from(*time).map_err(|_| unexpected())?;
    if answers.is_empty() {
        connection.clock().replace(Instant::now(), time);
        return Ok(None);
    }
    if answers.len() != count {
        return Err(unexpected());
    }
    connection.clock().learn(sent, Instant::now(), time);
    Ok(Some(answers.iter().map(|answer| answer_about_one(connection, answer)).collect()))
}

/// Returns the answer about one lock, which may be an error.
pub(super) fn answer_about_one(connection: &Connection, answer: &Value) -> Result<i64, Failure> {
    match answer {
        Value::Int(number) => Ok(*number),
        Value::BulkString(text) => Err(connection.failure_of(&String::from_utf8_lossy(text))),
        _ => Err(unexpected()),
    }
}

fn call<'a>(
    connection: &Connection,
    protocol: &dyn Protocol,
    script: &Script,
    claims: impl ExactSizeIterator<Item = &'a Claim> + Clone,
) -> Cmd {
    let count = claims.len();
    let mut call = script.call_with_room(2 * count, 4 + 6 * count, 128 + 320 * count);
    for claim in claims.clone() {
        call.arg(claim.id.key.stored());
        protocol.write_counter(&mut call, &claim.id.key);
    }
    let limit = claims.clone().map(|claim| claim.limit).min().unwrap_or(Instant::FAR_FUTURE);
    call.arg(connection.clock().at(limit));
    for claim in claims {
        protocol.write_owner(&mut call, claim.id.mode, claim.id.owner);
        call.arg(format::millis(claim.id.ttl))
            .arg(claim.number)
            .arg(claim.signature.as_deref().unwrap_or_default());
    }
    call
}

fn unexpected() -> Failure {
    Failure::Refused(error::unexpected("a question to a node"))
}
