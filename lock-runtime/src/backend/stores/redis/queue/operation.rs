//! The operations in a batch, and how a batch is sent. The locks of one domain share one call for all acquisitions, one
//! for all polls, and one for all releases.
//!
//! A batch only acquires locks that are free and have no waiters, and only releases locks without waiters. In all
//! other cases the caller has to ask again alone.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{
    super::{names::Process, node},
    answer::{Answer, TimedAnswer},
    calls,
};
use crate::{
    Label, LockKey,
    backend::{
        BoxFuture, LeaseId,
        kits::redis::{batch::join_all, error::Failure, net::Connection, slot::Slot},
    },
    time::clock::Instant,
};

#[derive(Debug)]
pub(crate) enum Operation {
    /// The answer is `None` if the caller has to ask alone, as for a held lock.
    Ask(Asked),
    /// The answer is whether this very grant was released; if not, the caller has to release alone.
    Release(Release),
}

/// A request for a lock, or a poll of a place.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) id: LeaseId,
    pub(crate) label: Label,
    /// For a poll: the address at which the owner is notified.
    pub(crate) polled_at: Option<String>,
    /// The moment from which the caller no longer waits for the answer.
    pub(crate) give_up: Instant,
    pub(crate) answer: oneshot::Sender<Result<Option<Answer>, Failure>>,
}

#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) id: LeaseId,
    pub(crate) must_follow: MustFollow,
    pub(crate) answer: oneshot::Sender<Result<bool, Failure>>,
}

/// The request after which a release must be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MustFollow {
    /// An unanswered acquisition over this connection. The release must be sent over the same connection, even after a
    /// long delay, because over another connection it could overtake the acquisition.
    Unanswered,
    /// No request: the grant was received, and any connection will do.
    Nothing,
}

/// Sends a batch, and gives each caller its answer.
pub(crate) async fn send(connection: Arc<Connection>, process: Arc<Process>, operations: Vec<Operation>) {
    let (connection, process, room) = (&*connection, &*process, operations.len());
    let (mut asked, mut releases) = (Parts::with_room(room), Parts::with_room(room));
    for operation in operations {
        match operation {
            Operation::Ask(one) => asked.put(process.slot(&one.id.key), one, |one, other| {
                one.polled_at.is_some() == other.polled_at.is_some()
                    && one.id.mode == other.id.mode
                    && share_a_call(process, &one.id.key, &other.id.key)
            }),
            Operation::Release(release) => {
                let slot = process.slot(&release.id.key);
                releases.put(slot, release, |one, other| share_a_call(process, &one.id.key, &other.id.key));
            }
        }
    }
    let (asked, releases) = (asked.parts, releases.parts);
    // All calls are sent before the first answer; releases come last, because a release may belong to an acquisition of
    // the same batch.
    let mut calls: Vec<BoxFuture<'_, ()>> = Vec::with_capacity(asked.len() + releases.len());
    calls.extend(
        asked.into_iter().map(|(_, part)| -> BoxFuture<'_, ()> { Box::pin(ask(connection, process, part)) }),
    );
    calls.extend(
        releases
            .into_iter()
            .map(|(_, part)| -> BoxFuture<'_, ()> { Box::pin(release(connection, process, part)) }),
    );
    join_all(calls).await;
}

fn share_a_call(process: &Process, one: &LockKey, other: &LockKey) -> bool {
    process.domain(one) == process.domain(other)
}

/// The operations of a batch, by the calls that they share, each with the slot of its locks where calls have one.
struct Parts<T> {
    parts: Vec<(Option<Slot>, Vec<T>)>,
    /// Number of operations in the batch, for which the first part has room.
    room: usize,
}

impl<T> Parts<T> {
    fn with_room(room: usize) -> Self {
        Self { parts: Vec::new(), room }
    }

    /// Adds an operation to the part with which it shares a call. The slots are compared first, because a batch may have
    /// as many parts as operations.
    fn put(&mut self, slot: Option<Slot>, operation: T, share_a_call: impl Fn(&T, &T) -> bool) {
        let shares = |(other, part): &&mut (Option<Slot>, Vec<T>)| {
            *other == slot && share_a_call(&part[0], &operation)
        };
        if let Some((_, part)) = self.parts.iter_mut().find(shares) {
            return part.push(operation);
        }
        let is_first = self.parts.is_empty() && slot.is_none();
        let mut part = Vec::with_capacity(if is_first { self.room } else { 1 });
        part.push(operation);
        self.parts.push((slot, part));
    }
}

async fn ask(connection: &Connection, process: &Process, mut part: Vec<Asked>) {
    let sent = Instant::now();
    let others: Vec<_> = part.extract_if(.., |one| one.answer.is_closed() || one.give_up <= sent).collect();
    tell(others.into_iter().map(|one| one.answer), Err(Failure::not_sent()));
    let Some(give_up) = part.iter().map(|one| one.give_up).min() else { return };
    let answers = if !connection.is_usable() {
        Err(Failure::not_sent())
    } else if part[0].polled_at.is_some() {
        let places =
            part.iter().map(|one| (&one.id, &one.label, one.polled_at.as_deref().unwrap_or_default()));
        let answers = calls::look(connection, process, places, give_up).await;
        answers.map(|answers| {
            let learn =
                |answer: Result<TimedAnswer, _>| answer.map(|told| told.learn(sent, connection.clock()));
            answers.into_iter().map(learn).collect()
        })
    } else {
        let locks = part.iter().map(|one| (&one.id, &one.label));
        let granted = node::acquire(connection, process, locks, give_up).await;
        granted.map(|granted| {
            let answer = |fence| Answer::Granted { fence, others_wait: false };
            let granted = granted.unwrap_or_else(|| vec![None; part.len()]);
            granted.into_iter().map(|fence| Ok(fence.map(answer))).collect()
        })
    };
    tell(part.into_iter().map(|one| one.answer), answers);
}

async fn release(connection: &Connection, process: &Process, mut part: Vec<Release>) {
    let unsent: Vec<_> = part
        .extract_if(.., |one| one.must_follow == MustFollow::Nothing && !connection.is_usable())
        .collect();
    tell(unsent.into_iter().map(|one| one.answer), Err(Failure::not_sent()));
    let released = node::release(connection, process, part.iter().map(|one| &one.id)).await;
    let answers = released.map(|released| match released {
        Some(released) => released.into_iter().map(Ok).collect(),
        None => part.iter().map(|_| Ok(false)).collect(),
    });
    tell(part.into_iter().map(|one| one.answer), answers);
}

/// Gives each caller its answer. A dropped caller cleans up by itself.
fn tell<T>(
    callers: impl Iterator<Item = oneshot::Sender<Result<T, Failure>>>,
    answers: Result<Vec<Result<T, Failure>>, Failure>,
) {
    match answers {
        Ok(answers) => {
            for (caller, answer) in callers.zip(answers) {
                let _ = caller.send(answer);
            }
        }
        Err(failure) => {
            for caller in callers {
                let _ = caller.send(Err(failure.clone()));
            }
        }
    }
}
