//! Keeps held locks: one job per store renews what is due in few round trips, and sees losses.
//!
//! There is no task and no timer per lock. A hold stands in one ordered schedule, so a node that hangs delays only
//! the answers about its own holds.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    backend::{LeaseId, Renewal},
    background,
    clock::{self, Instant},
    hold::Hold,
    shared::Shared,
    validity,
};

#[derive(Debug, Default)]
pub(crate) struct Keeper {
    schedule: Mutex<Schedule>,
    /// Tells the job that something is due earlier than it will look.
    earlier: Notify,
    ids: AtomicU64,
}

#[derive(Debug, Default)]
struct Schedule {
    due: BTreeMap<(u64, u64), Arc<Hold>>,
    /// When the job looks next; none while it sleeps without an end.
    looks_at: Option<Instant>,
    started: bool,
}

impl Keeper {
    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to keep a hold.
    pub(crate) fn add(&self, shared: &Arc<Shared>, hold: &Arc<Hold>) {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        hold.keeper_id.store(id, Ordering::Relaxed);
        let now = Instant::now();
        let start = self.put(hold, first_look(hold, now));
        if start {
            let shared = Arc::downgrade(shared);
            background::handle().spawn(run(shared));
        }
    }

    /// Ends the keeping: no renewal is sent for it any more.
    pub(crate) fn remove(&self, hold: &Hold) {
        let mut schedule = self.schedule();
        hold.close();
        let due = hold.due.swap(0, Ordering::Relaxed);
        schedule.due.remove(&(due, hold.keeper_id.load(Ordering::Relaxed)));
    }

    /// Puts a hold into the schedule; returns whether the job must be started.
    fn put(&self, hold: &Arc<Hold>, due: Instant) -> bool {
        let mut schedule = self.schedule();
        if hold.is_closed() {
            return false;
        }
        let due_nanos = due.as_nanos().max(1);
        hold.due.store(due_nanos, Ordering::Relaxed);
        schedule.due.insert((due_nanos, hold.keeper_id.load(Ordering::Relaxed)), Arc::clone(hold));
        if schedule.started && schedule.looks_at.is_none_or(|at| due < at) {
            schedule.looks_at = Some(due);
            self.earlier.notify_one();
        }
        !std::mem::replace(&mut schedule.started, true)
    }

    /// Takes what is due, and says when to look again.
    fn take_due(&self, now: Instant) -> (Vec<Arc<Hold>>, Option<Instant>) {
        let mut schedule = self.schedule();
        let later = schedule.due.split_off(&(now.as_nanos() + 1, 0));
        let due = std::mem::replace(&mut schedule.due, later);
        for hold in due.values() {
            hold.due.store(0, Ordering::Relaxed);
        }
        let next = schedule.due.first_key_value().map(|((at, _), _)| Instant::from_nanos(*at));
        schedule.looks_at = next;
        (due.into_values().collect(), next)
    }

    /// How many holds are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.schedule().due.len()
    }
}

/// When a hold is looked at for the first time after `now`.
fn first_look(hold: &Hold, now: Instant) -> Instant {
    let remaining = hold.remaining(now);
    if hold.terms.auto_renew {
        validity::renewal_due(now, remaining, hold.terms.ttl)
    } else {
        hold.deadline()
    }
}

/// The job. It ends when the last handle to the store is gone.
async fn run(shared: Weak<Shared>) {
    loop {
        let next = {
            let Some(shared) = shared.upgrade() else { return };
            let now = Instant::now();
            let (due, next) = shared.keeper.take_due(now);
            look_at(&shared, due, now);
            next
        };
        // Not longer than this without a look whether anybody still uses the store.
        let next = next.unwrap_or(Instant::now() + Duration::from_mins(1));
        let Some(keeper) = shared.upgrade().map(|shared| Arc::clone(&shared.keeper)) else { return };
        tokio::select! {
            () = clock::sleep_until(next) => {}
            () = keeper.earlier.notified() => {}
        }
    }
}

fn look_at(shared: &Arc<Shared>, due: Vec<Arc<Hold>>, now: Instant) {
    let mut to_renew: HashMap<Duration, Vec<Arc<Hold>>> = HashMap::new();
    for hold in due {
        if !hold.is_valid(now) {
            lost(shared, &hold, "its deadline passed without an answer from the store");
        } else if hold.terms.auto_renew && now < hold.turn_ends() {
            to_renew.entry(hold.terms.ttl).or_default().push(hold);
        } else {
            // Not renewed any more; what is left to see is the end of the lease.
            shared.keeper.put(&hold, hold.deadline());
        }
    }
    for holds in to_renew.into_values() {
        tokio::spawn(renew(Arc::clone(shared), holds));
    }
}

/// Renews leases of equal length in one call to the store.
async fn renew(shared: Arc<Shared>, holds: Vec<Arc<Hold>>) {
    let now = Instant::now();
    let remaining = holds.iter().map(|hold| hold.remaining(now)).min().unwrap_or_default();
    let ids: Vec<LeaseId> = holds.iter().map(|hold| hold.lease.id().clone()).collect();
    let answers = tokio::time::timeout(validity::renewal_limit(remaining), shared.backend.renew(&ids)).await;
    let mut answers = answers.unwrap_or_default().into_iter();
    for hold in &holds {
        match answers.next() {
            Some(Renewal::Renewed(until)) => {
                if hold.renewed(until) {
                    shared.keeper.put(hold, first_look(hold, Instant::now()));
                } else {
                    lost(&shared, hold, "the answer to its renewal came after its deadline");
                }
            }
            Some(Renewal::NotHeld) => lost(&shared, hold, "the store says that it is not ours any more"),
            Some(Renewal::Unknown(error)) => {
                tracing::debug!(key = %hold.key(), %error, "renewal failed, trying again while the lease lasts");
                try_again(&shared, hold);
            }
            None => {
                tracing::debug!(key = %hold.key(), "renewal was not answered in time, trying again");
                try_again(&shared, hold);
            }
        }
    }
}

fn try_again(shared: &Shared, hold: &Arc<Hold>) {
    let now = Instant::now();
    let remaining = hold.remaining(now);
    // At the deadline itself the look that sees the loss.
    let next = now + (remaining / 3).max(Duration::from_millis(1));
    shared.keeper.put(hold, next.min(hold.deadline()).max(now));
}

/// Tells the holder, and lets the others of this process ask the store again.
fn lost(shared: &Arc<Shared>, hold: &Arc<Hold>, why: &str) {
    if hold.is_closed() {
        return;
    }
    hold.lose();
    shared.keeper.remove(hold);
    tracing::warn!(key = %hold.key(), why, "lock lost");
    shared.cohorts.dissolve(hold);
}
