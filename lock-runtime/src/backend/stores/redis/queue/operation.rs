//! The operations in a batch, and how a batch is sent. The locks of one domain share one call for all acquisitions, one
//! for all polls, and one for all releases.
//!
//! A batch only acquires locks that are free and have no waiters, and only releases locks without waiters. In all
//! other cases the caller has to ask again alone.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{
    super::{
        names::Domain,
        node::{self, Acquisition},
    },
    answer::Answer,
    calls::{self, PollCall},
};
use crate::{
    LockKey,
    backend::{
        BoxFuture, LeaseId,
        kits::redis::{batch::join_all, error::Failure, net::Connection},
    },
    time::clock::Instant,
};

#[derive(Debug)]
pub(crate) enum Operation {
    /// The answer is the fence; `None` if the caller has to ask alone, as for a held lock.
    Acquire(Asked<Acquisition, Option<u64>>),
    /// The answer is the state of the place; `None` if the caller has to ask alone.
    PollCall(Asked<PollCall, Option<Answer>>),
    /// The answer is whether this very grant was released; if not, the caller has to release alone.
    Release(Release),
}

/// A request, and the moment from which its caller no longer waits for the answer.
#[derive(Debug)]
pub(crate) struct Asked<W, A> {
    pub(crate) what: W,
    pub(crate) give_up: Instant,
    pub(crate) answer: oneshot::Sender<Result<A, Failure>>,
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
    /// An unanswered acquisition over this connection: the release is of use only over the same connection, however
    /// late.
    Unanswered,
    /// No request: the grant was received, and any connection will do.
    Nothing,
}

/// Sends a batch, and gives each caller its answer.
pub(crate) async fn send(connection: Arc<Connection>, process: Arc<str>, operations: Vec<Operation>) {
    let (connection, process, room) = (&*connection, &*process, operations.len());
    let (mut acquisitions, mut looks, mut releases) = (Vec::new(), Vec::new(), Vec::new());
    for operation in operations {
        match operation {
            Operation::Acquire(asked) => put(&mut acquisitions, room, asked, |one, other| {
                one.what.mode == other.what.mode && share_a_call(&one.what.key, &other.what.key)
            }),
            Operation::PollCall(asked) => {
                put(&mut looks, room, asked, |one, other| share_a_call(&one.what.key, &other.what.key));
            }
            Operation::Release(release) => {
                put(&mut releases, room, release, |one, other| share_a_call(&one.id.key, &other.id.key));
            }
        }
    }
    // All calls are sent before the first answer; acquisitions come first, because a release may belong to an
    // acquisition of the same batch.
    let mut calls: Vec<BoxFuture<'_, ()>> =
        Vec::with_capacity(acquisitions.len() + looks.len() + releases.len());
    calls.extend(
        acquisitions
            .into_iter()
            .map(|part| -> BoxFuture<'_, ()> { Box::pin(acquire(connection, process, part)) }),
    );
    calls.extend(
        looks.into_iter().map(|part| -> BoxFuture<'_, ()> { Box::pin(look(connection, process, part)) }),
    );
    calls.extend(
        releases
            .into_iter()
            .map(|part| -> BoxFuture<'_, ()> { Box::pin(release(connection, process, part)) }),
    );
    join_all(calls).await;
}

fn share_a_call(one: &LockKey, other: &LockKey) -> bool {
    Domain::of(one) == Domain::of(other)
}

/// Adds an operation to the part with which it shares a call; the first part gets `room` for all operations.
fn put<T>(parts: &mut Vec<Vec<T>>, room: usize, operation: T, share_a_call: impl Fn(&T, &T) -> bool) {
    if let Some(part) = parts.iter_mut().find(|part| share_a_call(&part[0], &operation)) {
        return part.push(operation);
    }
    let mut part = Vec::with_capacity(if parts.is_empty() { room } else { 1 });
    part.push(operation);
    parts.push(part);
}

async fn acquire(connection: &Connection, process: &str, part: Vec<Asked<Acquisition, Option<u64>>>) {
    let Some((part, give_up)) = still_wanted(part) else { return };
    let answers = if connection.is_usable() {
        let locks = part.iter().map(|one| &one.what);
        let granted = node::acquire(connection, process, locks, give_up).await;
        granted.map(|granted| granted.unwrap_or_else(|| vec![None; part.len()]))
    } else {
        Err(Failure::not_sent())
    };
    tell(part.into_iter().map(|one| one.answer), answers);
}

async fn look(connection: &Connection, process: &str, part: Vec<Asked<PollCall, Option<Answer>>>) {
    let Some((part, give_up)) = still_wanted(part) else { return };
    let answers = if connection.is_usable() {
        let sent = Instant::now();
        let places = part.iter().map(|one| &one.what);
        calls::look(connection, process, places, give_up).await.map(|answers| (sent, answers))
    } else {
        Err(Failure::not_sent())
    };
    let callers = part.into_iter().map(|one| one.answer);
    match answers {
        Ok((sent, answers)) => {
            for (caller, answer) in callers.zip(answers) {
                let _ = caller.send(answer.map(|told| told.learn(sent, connection.clock())));
            }
        }
        Err(failure) => tell(callers, Err(failure)),
    }
}

/// Returns the requests of a part that are still wanted, and the time at which the first of their callers gives up.
///
/// Fails the other requests as not sent. Returns `None` if no request is left.
fn still_wanted<W, A>(mut part: Vec<Asked<W, A>>) -> Option<(Vec<Asked<W, A>>, Instant)> {
    let now = Instant::now();
    let others: Vec<_> = part.extract_if(.., |one| one.answer.is_closed() || one.give_up <= now).collect();
    tell(others.into_iter().map(|one| one.answer), Err(Failure::not_sent()));
    let give_up = part.iter().map(|one| one.give_up).min()?;
    Some((part, give_up))
}

async fn release(connection: &Connection, process: &str, mut part: Vec<Release>) {
    let unsent: Vec<_> = part
        .extract_if(.., |one| one.must_follow == MustFollow::Nothing && !connection.is_usable())
        .collect();
    tell(unsent.into_iter().map(|one| one.answer), Err(Failure::not_sent()));
    let released = node::release(connection, process, part.iter().map(|one| &one.id)).await;
    let answers = released.map(|released| released.unwrap_or_else(|| vec![false; part.len()]));
    tell(part.into_iter().map(|one| one.answer), answers);
}

/// Gives each caller its answer. A dropped caller cleans up by itself.
fn tell<T>(
    callers: impl Iterator<Item = oneshot::Sender<Result<T, Failure>>>,
    answers: Result<Vec<T>, Failure>,
) {
    match answers {
        Ok(answers) => {
            for (caller, answer) in callers.zip(answers) {
                let _ = caller.send(Ok(answer));
            }
        }
        Err(failure) => {
            for caller in callers {
                let _ = caller.send(Err(failure.clone()));
            }
        }
    }
}
