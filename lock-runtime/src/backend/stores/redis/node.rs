//! What one server can do for locks, many of them in a call: acquire those that are free, release and renew. It has no
//! queue of its own and looks at one only to see whether there are waiters.

use std::{sync::LazyLock, time::Duration};

use redis::{Cmd, RedisWrite};

use super::{
    error::{self, Failure},
    names,
    net::{Connection, Script},
};
use crate::{FencingToken, LockKey, OwnerToken, backend::LeaseId, backend::Mode, time::clock::Instant};

/// How long the counter of fences outlasts the last grant: twice the longest lease, 24 h.
const FENCE_RETENTION: Duration = Duration::from_secs(48 * 60 * 60);
const QUEUES: &str = include_str!("scripts/queues.lua");
/// Mints a fence.
pub(crate) const MINT: &str = include_str!("scripts/fence.lua");

pub(crate) static ACQUIRE_GROUP: LazyLock<Script> = LazyLock::new(|| {
    let acquire = include_str!("scripts/acquire_group.lua");
    Script::of(&[&fence_constants(), MINT, &group_constants(), QUEUES, acquire])
});
pub(crate) static RELEASE_GROUP: LazyLock<Script> =
    LazyLock::new(|| Script::of(&[&group_constants(), QUEUES, include_str!("scripts/release_group.lua")]));
pub(crate) static RENEW: LazyLock<Script> =
    LazyLock::new(|| Script::of(&[include_str!("scripts/renew.lua")]));

/// The constants of [`MINT`].
pub(crate) fn fence_constants() -> String {
    let retention = FENCE_RETENTION.as_millis();
    format!("local FENCE_RETENTION_MS, LAST_FENCE = '{retention}', {}", FencingToken::LAST_MICROS)
}

/// The constants of the scripts for many locks.
fn group_constants() -> String {
    format!("local QUEUE = ':~{}:queue'", names::FORMAT)
}

/// A lock to acquire.
#[derive(Debug)]
pub(crate) struct Acquisition {
    pub(crate) key: LockKey,
    pub(crate) mode: Mode,
    pub(crate) owner: OwnerToken,
    pub(crate) ttl_ms: u64,
}

/// Acquires those of these locks that are free and without waiters: the fence of each that is ours now. They have
/// one counter of fences and one mode. None where nothing was done, because the server did not know the script, which it
/// knows now, or because `give_up` had passed.
///
/// # Cancel safety
/// Dropped, the acquisitions may still be applied.
pub(crate) async fn acquire<'a>(
    connection: &Connection,
    process: &str,
    locks: impl ExactSizeIterator<Item = &'a Acquisition> + Clone,
    give_up: Instant,
) -> Result<Option<Vec<Option<u64>>>, Failure> {
    let (count, Some(first)) = (locks.len(), locks.clone().next()) else { return Ok(Some(Vec::new())) };
    let mut call = call_about(&ACQUIRE_GROUP, count + 1);
    call.write_arg_fmt(names::fence(&first.key));
    for lock in locks.clone() {
        call.arg(lock.key.stored());
    }
    call.arg(first.key.prefix()).arg(connection.clock().at(give_up));
    call.write_arg_fmt(names::owners(first.mode, process));
    for lock in locks {
        call.write_arg_fmt(names::token(lock.owner));
        call.arg(lock.ttl_ms);
    }
    let sent = Instant::now();
    // A script that was not known is not run now: a caller that is gone by now may have released already.
    let Some(answers) = connection.run_once::<Vec<u64>>(&ACQUIRE_GROUP, &call).await? else {
        return Ok(None);
    };
    let (time, answers) = answers.split_first().ok_or_else(unexpected)?;
    let Some((fence, refused)) = answers.split_first() else {
        // It came too late.
        connection.clock().replace(Instant::now(), *time);
        return Ok(None);
    };
    connection.clock().learn(sent, Instant::now(), *time);
    let mut granted = vec![Some(*fence); count];
    mark(&mut granted, refused, None)?;
    Ok(Some(granted))
}

/// Releases those of these grants that are still ours and without waiters: whether each was. Their locks have one
/// prefix. None where nothing was done, because the server did not know the script, which it knows now.
///
/// # Cancel safety
/// Dropped, the releases may still be applied.
pub(crate) async fn release<'a>(
    connection: &Connection,
    process: &str,
    grants: impl ExactSizeIterator<Item = &'a LeaseId> + Clone,
) -> Result<Option<Vec<bool>>, Failure> {
    let (count, Some(first)) = (grants.len(), grants.clone().next()) else { return Ok(Some(Vec::new())) };
    let mut call = call_about(&RELEASE_GROUP, count);
    for grant in grants.clone() {
        call.arg(grant.key.stored());
    }
    call.arg(first.key.prefix());
    for grant in grants {
        call.write_arg_fmt(value(process, grant));
    }
    let Some(refused) = connection.run_once::<Vec<u64>>(&RELEASE_GROUP, &call).await? else {
        return Ok(None);
    };
    let mut released = vec![true; count];
    mark(&mut released, &refused, false)?;
    Ok(Some(released))
}

/// Renews leases of one length, under one prefix: whether each is still ours.
///
/// # Cancel safety
/// Dropped, the renewals may still be applied.
pub(crate) async fn renew(connection: &Connection, call: &Renewals) -> Result<Vec<bool>, Failure> {
    let refused = connection.run::<Vec<u64>>(&RENEW, &call.call).await?;
    let mut renewed = vec![true; call.count];
    mark(&mut renewed, &refused, false)?;
    Ok(renewed)
}

/// A call that renews leases.
#[derive(Debug)]
pub(crate) struct Renewals {
    call: Cmd,
    count: usize,
}

impl Renewals {
    /// Of one length and under one prefix.
    pub(crate) fn of<'a>(process: &str, leases: impl ExactSizeIterator<Item = &'a LeaseId> + Clone) -> Self {
        let count = leases.len();
        let mut call = call_about(&RENEW, count);
        for lease in leases.clone() {
            call.arg(lease.key.stored());
        }
        call.arg(leases.clone().next().map_or(0, |lease| names::millis(lease.ttl)));
        for lease in leases {
            call.write_arg_fmt(value(process, lease));
        }
        Self { call, count }
    }
}

/// What the holder's key has while a grant lasts.
fn value(process: &str, grant: &LeaseId) -> impl std::fmt::Display {
    names::grant(grant.mode, process, grant.owner, grant.token.micros())
}

fn call_about(script: &Script, keys: usize) -> Cmd {
    script.call_with_room(keys, 6 + 2 * keys, 128 + 160 * keys)
}

/// Marks the answers of those that a script names, by their numbers from 1, each once and in order.
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
    Failure::Refused(error::unexpected("a call about many locks"))
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
