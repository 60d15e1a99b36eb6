//! How a task joins the queue of the lock that it wants.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

use tokio::sync::oneshot;

use crate::{
    LockError, LockErrorKind,
    backend::Wait,
    engine::{
        cohort::{
            follower::{Follower, GrantReceiver},
            leader::Leader,
            queues::{Cohort, Cohorts, Holder, LastAnswer, State, Waiter},
        },
        request::Request,
    },
    time::clock::Instant,
};

/// The next step of a task that wants a lock.
#[derive(Debug)]
pub(crate) enum Entry {
    /// Ask the store, as the leader of the tasks that will wait behind this task.
    Lead(Leader),
    /// Wait behind another task of this process.
    Follow(Follower),
    /// Fail: a task of this process holds the lock, and the request does not wait.
    Busy(Holder),
    /// Ask the store without joining the queue: the request does not wait, and another task of this process is asking
    /// for the lock, or has just lost the lock.
    Bypass,
}

/// Joins the queue of the requested lock for the attempt `id`.
pub(crate) fn enter(
    cohorts: &Arc<Cohorts>,
    request: &Request,
    id: u64,
    receiver: impl FnOnce() -> Arc<dyn GrantReceiver>,
) -> Result<Entry, LockError> {
    let lock = &request.lock;
    let mut all = cohorts.lock(lock);
    let Some(cohort) = all.get_mut(lock) else {
        let state = State::Asking { leader: id, last_answer: LastAnswer::None };
        all.insert(lock.clone(), Cohort { state, waiters: VecDeque::new() });
        return Ok(Entry::Lead(Leader::new(cohorts, lock.clone(), id)));
    };
    if request.wait == Wait::No {
        let now = Instant::now();
        return Ok(match &cohort.state {
            State::Holding { turn, .. } if turn.hold.is_valid(now) => Entry::Busy(Holder::of(turn, now)),
            _ => Entry::Bypass,
        });
    }
    let limits = cohorts.limits;
    if cohort.waiters.len() >= limits.waiters_per_key {
        return Err(overloaded(&format!("{} tasks of this process wait for it", limits.waiters_per_key)));
    }
    if cohorts.waiting.fetch_add(1, Ordering::Relaxed) >= limits.waiters {
        cohorts.waits_no_longer();
        return Err(overloaded(&format!("{} tasks of this process wait for locks", limits.waiters)));
    }
    let (call, called) = oneshot::channel();
    let (terms, max_hold) = (request.terms(), request.options.max_hold);
    cohort.waiters.push_back(Waiter { id, terms, max_hold, call });
    cohort.show_waiters();
    Ok(Entry::Follow(Follower::new(cohorts, receiver(), lock.clone(), id, called)))
}

fn overloaded(what: &str) -> LockError {
    LockError::new(LockErrorKind::Overloaded, format!("{what} already, the limit; try again later"))
}
