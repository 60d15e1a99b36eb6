//! The calls that involve the queue: ask for a lock, poll places, leave.

use std::{fmt, time::Duration};

use redis::{Cmd, RedisWrite};

use super::{super::names::Process, answer::TimedAnswer, scripts};
use crate::{
    Label, LockError, LockErrorKind, LockKey, OwnerToken,
    backend::{
        Acquire, LeaseId, Released,
        kits::redis::{
            error::{self, Failure},
            format,
            net::Connection,
        },
    },
    time::clock::Instant,
};

/// The aim of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The lock, but no place in its queue.
    Lock,
    /// The lock, or a place.
    LockOrPlace,
    /// The state of the place. Such a request neither creates a place nor, without a place, takes the lock.
    Place,
}

impl Need {
    fn word(self) -> &'static str {
        match self {
            Self::Lock => "try",
            Self::LockOrPlace => "join",
            Self::Place => "poll",
        }
    }
}

/// Asks for a lock, or for the state of a place, by a request that is not executed after `give_up`.
///
/// A waiter is notified at `address`.
///
/// # Cancel safety
/// If the future is dropped, the request may still be applied.
pub(crate) fn ask(
    connection: &Connection,
    process: &Process,
    (request, owner): (&Acquire, OwnerToken),
    want: Need,
    give_up: Instant,
    address: &impl fmt::Display,
) -> impl Future<Output = Result<TimedAnswer, Failure>> + Send {
    let mut call = scripts::ACQUIRE.call_with_room(6, 14, 640);
    add_domain(&mut call, process, &request.key);
    add_lock(&mut call, &request.key);
    call.arg(connection.clock().at(give_up)).arg(want.word());
    call.write_arg_fmt(process.owner(request.mode, &request.label, owner));
    call.arg(format::millis(request.ttl));
    if want != Need::Lock {
        call.write_arg_fmt(address);
    }
    // The future of an acquisition contains this future, and is cheaper to allocate below one kilobyte.
    async move { connection.run::<TimedAnswer>(&scripts::ACQUIRE, &call).await }
}

/// Polls many places of locks of one domain, each with the label of its owner, and the address at which its owner is
/// notified; each place has an answer of its own.
///
/// # Cancel safety
/// If the future is dropped, the places may still be refreshed, and locks taken for their owners.
pub(crate) async fn look<'a>(
    connection: &Connection,
    process: &Process,
    places: impl ExactSizeIterator<Item = (&'a LeaseId, &'a Label, &'a str)> + Clone,
    give_up: Instant,
) -> Result<Vec<Result<TimedAnswer, Failure>>, Failure> {
    let (count, Some((first, ..))) = (places.len(), places.clone().next()) else { return Ok(Vec::new()) };
    let mut call = scripts::ACQUIRE.call_with_room(2 + 4 * count, 7 + 7 * count, 128 + 576 * count);
    add_domain(&mut call, process, &first.key);
    for (place, ..) in places.clone() {
        add_lock(&mut call, &place.key);
    }
    call.arg(connection.clock().at(give_up)).arg(Need::Place.word());
    for (place, label, address) in places {
        call.write_arg_fmt(process.owner(place.mode, label, place.owner));
        call.arg(format::millis(place.ttl)).arg(address);
    }
    // The answer about one lock is not in a list; the driver makes a list of it.
    let answers = connection.run::<Vec<String>>(&scripts::ACQUIRE, &call).await?;
    if answers.len() == count {
        let one = |answer: String| {
            if answer.starts_with('-') {
                return Err(connection.failure_of(&answer));
            }
            TimedAnswer::of(&answer).map_err(|_| Failure::Refused(error::unexpected("a poll of a queue")))
        };
        Ok(answers.into_iter().map(one).collect())
    } else {
        Err(Failure::Refused(error::unexpected("a poll of many queues")))
    }
}

/// Releases a hold and hands the lock to the next waiter, or gives up a place. Returns `None` if the owner has neither.
///
/// `foreign` is how much longer the lock is remembered as used by foreign clients.
///
/// # Cancel safety
/// If the future is dropped, the release may still be applied.
pub(crate) async fn leave(
    connection: &Connection,
    process: &Process,
    (id, label): (&LeaseId, &Label),
    foreign: Duration,
) -> Result<Option<Released>, Failure> {
    let mut call = scripts::RELEASE.call_with_room(6, 11, 576);
    add_domain(&mut call, process, &id.key);
    add_lock(&mut call, &id.key);
    call.write_arg_fmt(process.owner(id.mode, label, id.owner));
    // With this argument, even with 0, the script treats the lock as used by foreign clients.
    let foreign = format::millis(foreign);
    if foreign > 0 {
        call.arg(foreign);
    }
    let answer: String = connection.run(&scripts::RELEASE, &call).await?;
    match answer.as_str() {
        "released" | "left" => Ok(Some(Released::Released)),
        "not yours" => Ok(None),
        _ => Err(Failure::Refused(error::unexpected("a release"))),
    }
}

/// Asks whether the lock has a queue. The places of waiters that crashed count until the queue expires.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn exists(connection: &Connection, key: &LockKey) -> Result<bool, Failure> {
    let mut call = redis::cmd("EXISTS");
    call.write_arg_fmt(format::beside(key, "queue"));
    connection.call(&call).await
}

/// Returns an error that names the key of a wrong type, which the script's error does not name.
///
/// Returns `None` if that key is the holder's, because then the caller has chosen a name that is in use for other data, or
/// if no such key is found.
pub(crate) async fn of_wrong_type(
    connection: &Connection,
    process: &Process,
    key: &LockKey,
) -> Option<LockError> {
    for (command, name, argument, what) in [
        ("GET", key.stored().to_owned(), None, None),
        ("LINDEX", format::beside(key, "queue").to_string(), Some("0"), Some("the list of its waiters")),
        ("HGET", format::beside(key, "places").to_string(), Some("0"), Some("the hash of their places")),
        ("GET", process.domain(key).fence().to_string(), None, Some("the counter of fencing tokens")),
    ] {
        let mut look = redis::cmd(command);
        look.arg(&name).arg(argument);
        if let Err(Failure::Refused(error)) = connection.call::<redis::Value>(&look).await
            && error.kind() == LockErrorKind::InvalidKey
        {
            let message = format!("the key `{name}` should be {}, but has another type; delete it", what?);
            return Some(LockError::backend(message).into_permanent().with_source(error));
        }
    }
    None
}

/// Adds the keys of a lock's domain.
pub(crate) fn add_domain(call: &mut Cmd, process: &Process, key: &LockKey) {
    let domain = process.domain(key);
    call.write_arg_fmt(domain.fence());
    call.write_arg_fmt(domain.queues());
}

/// Adds the keys of a lock: holder, queue, places, opening.
pub(crate) fn add_lock(call: &mut Cmd, key: &LockKey) {
    call.arg(key.stored());
    for what in ["queue", "places", "open"] {
        call.write_arg_fmt(format::beside(key, what));
    }
}
