//! The operations on one server that handle many locks in one call: acquire free locks, release, renew. These operations
//! join no queue, and read queues only to see whether a lock has waiters.

use std::sync::LazyLock;

use redis::{Cmd, RedisWrite};

use super::names::{Process, end_of_grant};
use crate::{
    Label, LockKey,
    backend::{
        LeaseId,
        kits::redis::{
            error::{self, Failure},
            format, lua,
            net::{Connection, Script},
        },
    },
    time::clock::Instant,
};

// There are separate scripts for one lock and for many locks. One acquire script and one release script for both cases,
// with all keys of every lock, would cost the server 6 % more instructions for one lock, 47 % more for 16 locks, and
// 56 % more for 64 (callgrind, Redis 7.0).
pub(crate) static ACQUIRE_GROUP: LazyLock<Script> = LazyLock::new(|| {
    let fence = lua::fence_constants(lua::FENCE_RETENTION);
    Script::of(&[&fence, lua::MINT, include_str!("scripts/acquire_group.lua")])
});
pub(crate) static RELEASE_GROUP: LazyLock<Script> =
    LazyLock::new(|| Script::of(&[include_str!("scripts/release_group.lua")]));
pub(crate) static RENEW: LazyLock<Script> =
    LazyLock::new(|| Script::of(&[lua::REPLICA_ERROR, include_str!("scripts/renew.lua")]));

/// Acquires each of `locks` that is free and has no waiters, and returns the fence of each lock that is ours now.
///
/// All locks must have the same domain and the same mode. Returns `None` if nothing was done, because
/// `give_up` had passed or the server did not know the script, which is now loaded.
///
/// # Cancel safety
/// If the future is dropped, the acquisitions may still be applied.
pub(crate) async fn acquire<'a>(
    connection: &Connection,
    process: &Process,
    locks: impl ExactSizeIterator<Item = (&'a LeaseId, &'a Label)> + Clone,
    give_up: Instant,
) -> Result<Option<Vec<Option<u64>>>, Failure> {
    let (count, Some((first, label))) = (locks.len(), locks.clone().next()) else {
        return Ok(Some(Vec::new()));
    };
    let domain = process.domain(&first.key);
    let mut call = call_about(&ACQUIRE_GROUP, 2 + 2 * count, 2 + 2 * count);
    call.write_arg_fmt(domain.fence());
    call.write_arg_fmt(domain.queues());
    add_locks(&mut call, locks.clone().map(|(lock, _)| &lock.key));
    call.arg(connection.clock().at(give_up));
    let owners = process.owners(first.mode);
    // Most calls are for locks with one label, which is sent only once then.
    if locks.clone().all(|(_, other)| other == label) {
        call.write_arg_fmt(format_args!("{owners}{}", process.labelled(label)));
        for (lock, _) in locks.clone() {
            call.write_arg_fmt(format::token(lock.owner));
        }
    } else {
        call.write_arg_fmt(owners);
        for (lock, label) in locks.clone() {
            call.write_arg_fmt(process.rest(label, lock.owner));
        }
    }
    let is_one_length = locks.clone().all(|(lock, _)| lock.ttl == first.ttl);
    for (lock, _) in locks.take(if is_one_length { 1 } else { count }) {
        call.arg(format::millis(lock.ttl));
    }
    let sent = Instant::now();
    // A script that the server did not know is loaded but not run: by now, a caller may have been dropped and have sent
    // its release, and no caller would be left to hold the lock.
    let Some(answers) = connection.run_once::<Vec<u64>>(&ACQUIRE_GROUP, &call).await? else {
        return Ok(None);
    };
    let (time, answers) = answers.split_first().ok_or_else(unexpected)?;
    let Some((fence, refused)) = answers.split_first() else {
        // The request came too late.
        connection.clock().replace(Instant::now(), *time);
        return Ok(None);
    };
    connection.clock().learn(sent, Instant::now(), *time);
    let mut granted = vec![Some(*fence); count];
    mark(&mut granted, refused, None)?;
    Ok(Some(granted))
}

/// Releases each of `grants` that is still ours and has no waiters, and returns whether each was released.
///
/// All locks must have the same domain. Returns `None` if nothing was done, because the server did not know the script,
/// which is now loaded.
///
/// # Cancel safety
/// If the future is dropped, the releases may still be applied.
pub(crate) async fn release<'a>(
    connection: &Connection,
    process: &Process,
    grants: impl ExactSizeIterator<Item = &'a LeaseId> + Clone,
) -> Result<Option<Vec<bool>>, Failure> {
    let (count, Some(first)) = (grants.len(), grants.clone().next()) else { return Ok(Some(Vec::new())) };
    let mut call = call_about(&RELEASE_GROUP, 1 + 2 * count, count);
    call.write_arg_fmt(process.domain(&first.key).queues());
    add_locks(&mut call, grants.clone().map(|grant| &grant.key));
    for grant in grants {
        call.write_arg_fmt(end(grant));
    }
    let Some(refused) = connection.run_once::<Vec<u64>>(&RELEASE_GROUP, &call).await? else {
        return Ok(None);
    };
    let mut released = vec![true; count];
    mark(&mut released, &refused, false)?;
    Ok(Some(released))
}

/// Renews leases of one length in one domain, and returns what became of each.
///
/// # Cancel safety
/// If the future is dropped, the renewals may still be applied.
pub(crate) async fn renew(connection: &Connection, call: &Renewals) -> Result<Vec<Renewed>, Failure> {
    call.read(&connection.run::<Vec<i64>>(&RENEW, &call.call).await?)
}

/// Renews like [`renew`]. Returns `None` if nothing was done, because the server did not know the script, which is now
/// loaded.
///
/// # Cancel safety
/// If the future is dropped, the renewals may still be applied.
pub(crate) async fn renew_once(
    connection: &Connection,
    call: &Renewals,
) -> Result<Option<Vec<Renewed>>, Failure> {
    let refused = connection.run_once::<Vec<i64>>(&RENEW, &call.call).await?;
    refused.map(|refused| call.read(&refused)).transpose()
}

/// What became of the renewal of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Yes,
    NotHeld,
    Revoked,
}

/// A call that renews leases.
#[derive(Debug)]
pub(crate) struct Renewals {
    call: Cmd,
    count: usize,
}

impl Renewals {
    /// Creates the call for leases of one length in one domain.
    pub(crate) fn of<'a>(leases: impl ExactSizeIterator<Item = &'a LeaseId> + Clone) -> Self {
        let count = leases.len();
        let mut call = call_about(&RENEW, count, 1 + count);
        for lease in leases.clone() {
            call.arg(lease.key.stored());
        }
        call.arg(leases.clone().next().map_or(0, |lease| format::millis(lease.ttl)));
        for lease in leases {
            call.write_arg_fmt(end(lease));
        }
        Self { call, count }
    }

    /// Reads the answer, which names the leases that were not renewed.
    fn read(&self, refused: &[i64]) -> Result<Vec<Renewed>, Failure> {
        let numbers = |are_all: bool| -> Vec<_> {
            let named = refused.iter().filter(|number| are_all || **number < 0);
            named.map(|number| number.unsigned_abs()).collect()
        };
        let mut renewed = vec![Renewed::Yes; self.count];
        mark(&mut renewed, &numbers(true), Renewed::NotHeld)?;
        mark(&mut renewed, &numbers(false), Renewed::Revoked)?;
        Ok(renewed)
    }
}

/// Returns the end of the holder's value while a grant lasts.
fn end(grant: &LeaseId) -> impl std::fmt::Display {
    end_of_grant(grant.owner, grant.token.micros())
}

fn call_about(script: &Script, keys: usize, arguments: usize) -> Cmd {
    script.call_with_room(keys, 3 + keys + arguments, 128 + 64 * keys + 96 * arguments)
}

/// Adds the holders' keys, then the keys of the locks' queues.
fn add_locks<'a>(call: &mut Cmd, locks: impl Iterator<Item = &'a LockKey> + Clone) {
    for key in locks.clone() {
        call.arg(key.stored());
    }
    for key in locks {
        call.write_arg_fmt(format::beside(key, "queue"));
    }
}

/// Sets each answer that a script names to `as_what`. The script names answers by their numbers, from 1, in ascending
/// order and without repetition; anything else is an error.
fn mark<T: Copy>(answers: &mut [T], named: &[u64], as_what: T) -> Result<(), Failure> {
    if !named.is_sorted_by(|a, b| a < b) {
        return Err(unexpected());
    }
    for number in named {
        let index = usize::try_from(*number).ok().and_then(|number| number.checked_sub(1));
        *index.and_then(|index| answers.get_mut(index)).ok_or_else(unexpected)? = as_what;
    }
    Ok(())
}

fn unexpected() -> Failure {
    Failure::Refused(error::unexpected("a call for many locks"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_names_is_marked_and_what_it_cannot_mean_is_an_error() {
        let marked = |named: &[u64]| {
            let mut answers = [true; 3];
            mark(&mut answers, named, false).map(|()| answers)
        };
        assert_eq!(marked(&[]).expect("none"), [true; 3]);
        assert_eq!(marked(&[1, 3]).expect("two"), [false, true, false]);
        for wrong in [&[0][..], &[4], &[2, 1], &[2, 2]] {
            assert!(marked(wrong).is_err(), "{wrong:?}");
        }
    }
}
