//! The queues of all locks of one store.

use std::{
    collections::VecDeque,
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, oneshot};

use crate::{
    LockError, LockHolder,
    backend::{HandOver, LockId, Reports, client_name},
    engine::{
        cohort::tenure::Tenure,
        hold::{Hold, Turn},
        limits::Limits,
        terms::Terms,
    },
    hash::HashMap,
    sync::{Sharded, check_or_wait},
    time::clock::Instant,
};

#[derive(Debug)]
pub(crate) struct Cohorts {
    by_lock: Sharded<HashMap<LockId, Cohort>>,
    pub(super) waiting: AtomicUsize,
    attempt_ids: AtomicU64,
    /// Notified of the store's first answer about a lock, and of each grant of a lock for which other tasks wait. Only
    /// waiters whose time limit has passed use this notification (see [`LATE_ANSWER`](super::follower::LATE_ANSWER)).
    first_answer: Notify,
    pub(super) limits: Limits,
}

/// One lock's queue, which exists while a task of this process asks for the lock or holds it.
#[derive(Debug)]
pub(super) struct Cohort {
    pub(super) state: State,
    pub(super) waiters: VecDeque<Waiter>,
}

#[derive(Debug)]
pub(super) enum State {
    /// The leader asks the store. `leader` is the number of its attempt, so that an attempt that was given up cannot
    /// affect its successor.
    Asking { leader: u64, last_answer: LastAnswer },
    /// A task of this process holds the lock, or has been sent the [`Call::Enter`] that gives the lock to the task.
    Holding { turn: Arc<Turn>, tenure: Tenure },
}

/// The store's last answer about the lock since a task of this process last held the lock.
#[derive(Debug)]
pub(super) enum LastAnswer {
    None,
    /// Another client holds the lock.
    Held,
    Failed(LockError),
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) id: u64,
    pub(super) terms: Terms,
    pub(super) max_hold: Duration,
    pub(super) call: oneshot::Sender<Call>,
}

/// A message that takes a waiter out of the queue.
#[derive(Debug)]
pub(super) enum Call {
    /// The waiter holds the lock: the turn was handed over to it.
    Enter(Arc<Turn>),
    /// The waiter has to ask the store, after a pause.
    Lead { pause: Duration },
}

/// The known facts about the holder of a lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holder {
    /// The time left of the holder's lease, if known.
    pub(crate) remaining: Option<Duration>,
    /// Whether the lease will certainly not be renewed, so that the lock is free when the lease ends.
    pub(crate) is_final: bool,
    /// The holder as operators see it, if the store has stated it, or if this process is the holder.
    pub(crate) seen: Option<Arc<LockHolder>>,
}

impl Holder {
    /// Describes a holder in this process.
    pub(super) fn of(turn: &Turn, now: Instant) -> Self {
        let remaining = Some(turn.hold.remaining(now));
        let seen =
            LockHolder::new().with_client(client_name()).with_remaining(remaining).with_token(turn.token);
        Self { remaining, is_final: !turn.hold.terms.auto_renew, seen: Some(Arc::new(seen)) }
    }
}

/// Why a wait ended without the lock.
#[derive(Debug)]
pub(crate) enum TimeoutCause {
    /// Another client or task holds the lock.
    Held(Holder),
    /// The last request to the store failed.
    Failed(LockError),
    /// The store has not answered the attempt `leader` yet.
    Unanswered { leader: u64 },
}

/// The work that the end of a turn leaves to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterTurn {
    /// No work is left.
    Nothing,
    /// The lease must be released in the store.
    Release,
}

impl Cohorts {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            by_lock: Sharded::default(),
            waiting: AtomicUsize::new(0),
            attempt_ids: AtomicU64::new(0),
            first_answer: Notify::new(),
            limits,
        })
    }

    /// Locks the shard that has the queue of this lock.
    pub(super) fn lock(&self, lock: &LockId) -> MutexGuard<'_, HashMap<LockId, Cohort>> {
        self.by_lock.of(lock.key.stored())
    }

    /// Returns whether no lock is asked for, held or waited for.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_lock.each().all(|cohorts| cohorts.is_empty()) && self.waiting.load(Ordering::Relaxed) == 0
    }

    /// Returns a number that identifies an attempt in a queue.
    pub(crate) fn next_id(&self) -> u64 {
        self.attempt_ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Decides which task holds the lock or asks for it next, after the holder of `turn` has left. `valid` tells
    /// whether the turn was still valid at that moment.
    pub(crate) fn leave(&self, turn: &Arc<Turn>, valid: bool, now: Instant) -> AfterTurn {
        let hold = &turn.hold;
        let mut cohorts = self.lock(&hold.lock);
        let Some(cohort) = cohorts.get_mut(&hold.lock) else { return AfterTurn::Release };
        let State::Holding { turn: present, tenure } = &mut cohort.state else { return AfterTurn::Release };
        if !Arc::ptr_eq(present, turn) {
            return AfterTurn::Release;
        }
        // Without a waiter, the store need not decide whether the lease may be handed over.
        let lease = hold.in_store.lease().filter(|_| !cohort.waiters.is_empty());
        let store = lease.map_or(HandOver::refused(), |lease| lease.may_hand_over());
        let may_pass = valid && tenure.may_go_on(now, store);
        // The lease goes only to a waiter that asked for the same terms. A waiter that asked for no renewal needs a
        // fresh lease of full length.
        let takes = |next: &Waiter| {
            may_pass
                && next.terms == hold.terms
                && next.terms.auto_renew
                && hold.has_enough_validity(now, next.max_hold)
        };
        while let Some(next) = cohort.waiters.front().filter(|next| takes(next)) {
            let Some(next_turn) = turn.next(now, next.max_hold) else { break };
            let next = cohort.waiters.pop_front().expect("looked at above");
            // If this waiter has just given up, the lease goes to the waiter behind it.
            if next.call.send(Call::Enter(Arc::clone(&next_turn))).is_ok() {
                *present = next_turn;
                tenure.handed_over();
                cohort.show_waiters();
                return AfterTurn::Nothing;
            }
        }
        // From here on, no task of this process uses the lease.
        Self::call_leader(&mut cohorts, &hold.lock, store.keep_off);
        AfterTurn::Release
    }

    /// Lets the next waiter ask the store after the loss of a hold, without waiting until the holder has noticed the
    /// loss.
    pub(crate) fn dissolve(&self, lost: &Arc<Hold>) {
        let mut cohorts = self.lock(&lost.lock);
        if let Some(Cohort { state: State::Holding { turn, .. }, .. }) = cohorts.get(&lost.lock)
            && Arc::ptr_eq(&turn.hold, lost)
        {
            Self::call_leader(&mut cohorts, &lost.lock, Duration::ZERO);
        }
    }

    /// Takes a waiter out of the queue; returns why the waiter has not got the lock so far.
    pub(super) fn withdraw(&self, lock: &LockId, id: u64) -> TimeoutCause {
        let mut cohorts = self.lock(lock);
        let Some(cohort) = cohorts.get_mut(lock) else { return TimeoutCause::Held(Holder::default()) };
        cohort.waiters.retain(|waiter| waiter.id != id);
        cohort.show_waiters();
        match &cohort.state {
            State::Holding { turn, .. } => TimeoutCause::Held(Holder::of(turn, Instant::now())),
            State::Asking { leader, last_answer } => last_answer.timeout_cause(*leader),
        }
    }

    /// Returns why the store has not granted the lock to the attempt `id` so far.
    pub(super) fn timeout_cause(&self, lock: &LockId, id: u64) -> TimeoutCause {
        match self.lock(lock).get(lock) {
            Some(Cohort { state: State::Asking { last_answer, .. }, .. }) => last_answer.timeout_cause(id),
            _ => TimeoutCause::Held(Holder::default()),
        }
    }

    /// Records an answer of the store to `attempt`, if that attempt leads the queue.
    fn record(&self, lock: &LockId, attempt: u64, answer: LastAnswer) {
        if let Some(Cohort { state: State::Asking { leader, last_answer }, .. }) =
            self.lock(lock).get_mut(lock)
            && *leader == attempt
            && let LastAnswer::None = std::mem::replace(last_answer, answer)
        {
            self.first_answer.notify_waiters();
        }
    }

    /// Records that the store granted the lock to the attempt `id`. Returns whether the store had said before that
    /// another client held the lock.
    pub(super) fn granted(&self, lock: &LockId, id: u64, turn: &Arc<Turn>, now: Instant) -> bool {
        let mut cohorts = self.lock(lock);
        let Some(cohort) = cohorts.get_mut(lock).filter(|cohort| cohort.is_led_by(id)) else { return false };
        let was_held = matches!(cohort.state, State::Asking { last_answer: LastAnswer::Held, .. });
        cohort.state = State::Holding { turn: Arc::clone(turn), tenure: Tenure::begin(now) };
        if !cohort.waiters.is_empty() {
            cohort.show_waiters();
            self.first_answer.notify_waiters();
        }
        was_held
    }

    /// Lets the next waiter ask the store, if the attempt `id` leads the queue.
    pub(super) fn give_up_lead(&self, lock: &LockId, id: u64) {
        let mut cohorts = self.lock(lock);
        if cohorts.get(lock).is_some_and(|cohort| cohort.is_led_by(id)) {
            Self::call_leader(&mut cohorts, lock, Duration::ZERO);
        }
    }

    /// Counts that a task no longer waits.
    pub(super) fn waits_no_longer(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns `Some` if the store has answered about the lock. Otherwise, waits until the store has answered about
    /// some lock, and returns `None`: the caller then calls this method again.
    pub(super) async fn check_answered(&self, lock: &LockId) -> Option<()> {
        check_or_wait(&self.first_answer, || (!self.is_unanswered(lock)).then_some(())).await
    }

    /// Returns whether the lock is asked for, and the store has not answered yet.
    fn is_unanswered(&self, lock: &LockId) -> bool {
        matches!(
            self.lock(lock).get(lock),
            Some(Cohort { state: State::Asking { last_answer: LastAnswer::None, .. }, .. })
        )
    }

    /// Returns whether the attempt `id` leads the queue of the lock, and tasks wait behind it.
    pub(crate) fn leads_others(&self, lock: &LockId, id: u64) -> bool {
        self.lock(lock).get(lock).is_some_and(|cohort| cohort.is_led_by(id) && !cohort.waiters.is_empty())
    }

    /// Sends a [`Call::Lead`] to the first waiter, which then asks the store after `pause`. Removes the queue if no
    /// task waits.
    fn call_leader(cohorts: &mut HashMap<LockId, Cohort>, lock: &LockId, pause: Duration) {
        let Some(cohort) = cohorts.get_mut(lock) else { return };
        while let Some(waiter) = cohort.waiters.pop_front() {
            if waiter.call.send(Call::Lead { pause }).is_ok() {
                match &mut cohort.state {
                    // The last answer to a leader also counts for its successor.
                    State::Asking { leader, .. } => *leader = waiter.id,
                    state @ State::Holding { .. } => {
                        *state = State::Asking { leader: waiter.id, last_answer: LastAnswer::None };
                    }
                }
                return;
            }
        }
        cohorts.remove(lock);
    }
}

impl Cohort {
    /// Records in the hold, if there is one, whether tasks wait.
    pub(super) fn show_waiters(&self) {
        if let State::Holding { turn, .. } = &self.state {
            turn.hold.set_waiters(!self.waiters.is_empty());
        }
    }

    /// Returns whether the attempt `id` leads the queue.
    fn is_led_by(&self, id: u64) -> bool {
        matches!(self.state, State::Asking { leader, .. } if leader == id)
    }
}

impl LastAnswer {
    fn timeout_cause(&self, leader: u64) -> TimeoutCause {
        match self {
            Self::None => TimeoutCause::Unanswered { leader },
            Self::Held => TimeoutCause::Held(Holder::default()),
            Self::Failed(error) => TimeoutCause::Failed(error.clone()),
        }
    }
}

impl Reports for Cohorts {
    fn contended(&self, lock: &LockId, attempt: u64) {
        self.record(lock, attempt, LastAnswer::Held);
    }

    fn failed(&self, lock: &LockId, attempt: u64, error: &LockError) {
        self.record(lock, attempt, LastAnswer::Failed(error.clone()));
    }
}
