//! Keeps held locks: one job per store renews what is due in few round trips, and sees losses.
//!
//! There is no task and no timer per lock. A hold stands in one ordered schedule, so a node that hangs delays only
//! the answers about its own holds.

use std::{
    collections::BTreeMap,
    slice,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    backend::{LeaseId, LossNotifier, Renew, Renewal},
    background,
    burst::Burst,
    engine::hold::Hold,
    sync::lock,
    time::{
        clock::{self, Instant},
        renewal::{renewal_due, renewal_limit},
    },
};

/// How many leases are renewed in one call to the store at most. A call that is not answered in time has renewed none of
/// them: where very many are due at once, after an outage or on a machine that is too slow, the others count.
const RENEWED_TOGETHER: usize = 1_024;

/// What the renewals ask of those above them.
pub(crate) trait Above: Send + Sync + 'static {
    /// The renewals themselves, which live as long.
    fn renewals(&self) -> &Arc<Renewals>;

    /// How the leases of the store are renewed.
    fn renewal(&self) -> Option<&dyn Renew>;

    /// Ends the keeping of a turn without a guard, when its time is over; false when the turn is being used.
    fn end_retention(&self, hold: &Arc<Hold>) -> bool;

    /// A hold is lost, and its holder is told.
    fn lost(&self, hold: &Arc<Hold>);
}

#[derive(Debug, Default)]
pub(crate) struct Renewals {
    schedule: Mutex<Schedule>,
    /// Tells the job that something is due earlier than it will look.
    earlier: Notify,
    ids: AtomicU64,
}

#[derive(Debug, Default)]
struct Schedule {
    due: BTreeMap<(u64, u64), Arc<Hold>>,
    /// When the job looks next; none while there is nothing to look at.
    looks_at: Option<Instant>,
    started: bool,
}

impl Renewals {
    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        lock(&self.schedule)
    }

    /// Begins to keep a hold of a store.
    pub(crate) fn add<A: Above>(above: &Arc<A>, hold: &Arc<Hold>, now: Instant) {
        let this = above.renewals();
        let id = this.ids.fetch_add(1, Ordering::Relaxed);
        hold.scheduled.id.store(id, Ordering::Relaxed);
        plan_renewal(hold, now);
        if this.put(slice::from_ref(hold)) {
            background::handle().spawn(run(Arc::downgrade(above)));
        }
        if let Some(session) = hold.session() {
            let (above, hold) = (Arc::downgrade(above), Arc::downgrade(hold));
            let notify = move |why: &str| {
                if let (Some(above), Some(hold)) = (above.upgrade(), hold.upgrade()) {
                    lost(&above, &hold, why);
                }
            };
            Arc::clone(session).on_loss(LossNotifier(Box::new(notify)));
        }
    }

    /// Ends the keeping: no renewal is sent for it any more.
    pub(crate) fn remove(&self, hold: &Hold) {
        let mut schedule = self.schedule();
        hold.close();
        schedule.take(hold);
    }

    /// The end of a turn was moved: looks at the hold in time. Without a lock where it does so anyway.
    pub(crate) fn turn_moved(&self, hold: &Arc<Hold>) {
        // A hold without a place is in the job's hands, which looks at the turn when it puts it back.
        let is_late = |due| due != 0 && due > next_in_turn(hold).as_nanos();
        if is_late(hold.scheduled.due.load(Ordering::SeqCst)) {
            let mut schedule = self.schedule();
            if is_late(hold.scheduled.due.load(Ordering::SeqCst)) {
                schedule.take(hold);
                self.insert(&mut schedule, hold, next_in_turn(hold));
            }
        }
    }

    /// Puts holds into the schedule; returns whether the job must be started.
    fn put(&self, holds: &[Arc<Hold>]) -> bool {
        let mut schedule = self.schedule();
        for hold in holds.iter().filter(|hold| !hold.is_closed()) {
            self.plan(&mut schedule, hold);
        }
        !schedule.due.is_empty() && !std::mem::replace(&mut schedule.started, true)
    }

    fn plan(&self, schedule: &mut Schedule, hold: &Arc<Hold>) {
        // A caller that moves the end of the turn from here on sees that there is something to move here, too.
        hold.scheduled.due.store(u64::MAX, Ordering::SeqCst);
        // Behind the end of its turn it is not renewed any more; what is left to see is the end of the lease. An end that
        // was moved since the job looked is looked at again, at once if it has passed.
        let behind = hold.scheduled.end_seen.load(Ordering::SeqCst) == hold.turn_ends().as_nanos();
        let due = if behind { hold.deadline() } else { next_in_turn(hold).min(hold.deadline()) };
        self.insert(schedule, hold, due);
    }

    fn insert(&self, schedule: &mut Schedule, hold: &Arc<Hold>, due: Instant) {
        let due_nanos = due.as_nanos().max(1);
        hold.scheduled.due.store(due_nanos, Ordering::SeqCst);
        schedule.due.insert((due_nanos, hold.scheduled.id.load(Ordering::Relaxed)), Arc::clone(hold));
        if schedule.looks_at.is_none_or(|at| due < at) {
            schedule.looks_at = Some(due);
            self.earlier.notify_one();
        }
    }

    /// Takes what is due, and plans the next look.
    fn take_due(&self, now: Instant) -> Vec<Arc<Hold>> {
        let mut schedule = self.schedule();
        let later = schedule.due.split_off(&(now.as_nanos() + 1, 0));
        let due = std::mem::replace(&mut schedule.due, later);
        for hold in due.values() {
            hold.scheduled.due.store(0, Ordering::SeqCst);
        }
        schedule.looks_at = schedule.due.first_key_value().map(|((at, _), _)| Instant::from_nanos(*at));
        due.into_values().collect()
    }

    /// How many holds are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.schedule().due.len()
    }
}

impl Schedule {
    fn take(&mut self, hold: &Hold) {
        let due = hold.scheduled.due.swap(0, Ordering::SeqCst);
        self.due.remove(&(due, hold.scheduled.id.load(Ordering::Relaxed)));
    }
}

/// When there is something to do for a hold during its turn: to renew it, or to see the turn end.
fn next_in_turn(hold: &Hold) -> Instant {
    Instant::from_nanos(hold.scheduled.renew_at.load(Ordering::SeqCst)).min(hold.turn_ends())
}

/// Decides when a hold that is valid at `now` is renewed next.
fn plan_renewal(hold: &Hold, now: Instant) {
    if hold.terms.auto_renew && hold.lease().is_some() {
        let due = renewal_due(now, hold.remaining(now), hold.terms.ttl);
        hold.scheduled.renew_at.store(due.as_nanos(), Ordering::SeqCst);
    }
}

/// The job. It ends when the last handle to the store is gone.
async fn run<A: Above>(above: Weak<A>) {
    loop {
        let Some(renewals) = above.upgrade().map(|above| Arc::clone(above.renewals())) else { return };
        let next = renewals.schedule().looks_at;
        tokio::select! {
            // Not longer than a minute without a look whether anybody still uses the store.
            () = clock::sleep_until(next.unwrap_or(Instant::now() + Duration::from_secs(60))) => {}
            // To sleep less long, not to look: what was put here may be gone by now, and without a plan for the next
            // look every hold that comes would wake this thread.
            () = renewals.earlier.notified() => continue,
        }
        let Some(above) = above.upgrade() else { return };
        let now = Instant::now();
        look_at(&above, above.renewals().take_due(now), now);
    }
}

fn look_at<A: Above>(above: &Arc<A>, due: Vec<Arc<Hold>>, now: Instant) {
    // There are few of them, and most holds belong to the one of the hold before.
    let mut to_renew: Vec<(_, Vec<_>)> = Vec::new();
    for hold in due {
        if !hold.is_valid(now) {
            lost(above, &hold, "its deadline passed without an answer from the store");
        } else if now < hold.turn_ends() && hold.scheduled.renew_at.load(Ordering::SeqCst) <= now.as_nanos() {
            let batch = batch(&hold, now);
            match to_renew.iter_mut().rev().find(|(other, _)| *other == batch) {
                Some((_, holds)) => holds.push(hold),
                None => to_renew.push((batch, vec![hold])),
            }
        } else if !end_turn(above, &hold, now) {
            above.renewals().put(&[hold]);
        }
    }
    for (_, mut holds) in to_renew {
        while !holds.is_empty() {
            let rest = holds.split_off(holds.len().min(RENEWED_TOGETHER));
            let renewal = renew(Arc::clone(above), std::mem::replace(&mut holds, rest));
            tokio::spawn(renewal);
        }
    }
}

/// Ends an unused turn whose time is over; of a session, also one that is being used. False when the hold
/// goes on.
fn end_turn<A: Above>(above: &Arc<A>, hold: &Arc<Hold>, now: Instant) -> bool {
    let ends = hold.turn_ends();
    if now < ends {
        return false;
    }
    if above.end_retention(hold) {
        return true;
    }
    if hold.session().is_some() {
        lost(above, hold, "its turn is over, by `max_hold` or by `ttl` without renewal");
        return true;
    }
    hold.scheduled.end_seen.store(ends.as_nanos(), Ordering::SeqCst);
    false
}

/// What leases have in common that are renewed in one call: their length, and about what they have left, because the
/// one with the least sets the limit of the call.
fn batch(hold: &Hold, now: Instant) -> (Duration, u32) {
    (hold.terms.ttl, hold.remaining(now).as_millis().max(1).ilog2())
}

/// Renews leases of one [`batch`] in one call to the store.
async fn renew<A: Above>(above: Arc<A>, holds: Vec<Arc<Hold>>) {
    let now = Instant::now();
    let remaining = holds.iter().map(|hold| hold.remaining(now)).min().unwrap_or_default();
    let mut open =
        Unanswered { above: &above, renewed: Vec::with_capacity(holds.len()), holds: holds.into_iter() };
    let leases = open.holds.as_slice().iter().filter_map(|hold| hold.lease());
    let ids: Vec<LeaseId> = leases.map(|lease| lease.id().clone()).collect();
    let Some(store) = above.renewal() else {
        for hold in open.holds.by_ref() {
            lost(&above, &hold, "its store grants leases and does not renew them (`Backend::renewal`)");
        }
        return;
    };
    let answers = tokio::time::timeout(renewal_limit(remaining), store.renew(&ids)).await;
    for answer in answers.unwrap_or_default() {
        let Some(hold) = open.holds.next() else { return };
        match answer {
            Renewal::Renewed(until) if hold.renewed(until) => open.renewed.push(hold),
            Renewal::Renewed(_) => lost(&above, &hold, "the answer to its renewal came after its deadline"),
            Renewal::NotHeld => lost(&above, &hold, "the store says that it is not ours any more"),
            Renewal::Unknown(error) => {
                tracing::debug!(key = %hold.key(), %error, "renewal failed, trying again while the lease lasts");
                try_again(&above, &hold);
            }
        }
    }
}

/// Holds whose renewal has not been answered, and those for which it has and that are not in the schedule again;
/// dropped, also by a panic in the store, it sees that all are looked at again.
struct Unanswered<'a, A: Above> {
    above: &'a Arc<A>,
    renewed: Vec<Arc<Hold>>,
    holds: std::vec::IntoIter<Arc<Hold>>,
}

impl<A: Above> Drop for Unanswered<'_, A> {
    fn drop(&mut self) {
        let now = Instant::now();
        for hold in &self.renewed {
            plan_renewal(hold, now);
        }
        // The turn may have ended meanwhile.
        self.renewed.retain(|hold| !end_turn(self.above, hold, now));
        self.above.renewals().put(&self.renewed);
        for hold in self.holds.by_ref() {
            tracing::debug!(key = %hold.key(), "renewal was not answered, trying again while the lease lasts");
            try_again(self.above, &hold);
        }
    }
}

fn try_again<A: Above>(above: &Arc<A>, hold: &Arc<Hold>) {
    let now = Instant::now();
    let remaining = hold.remaining(now);
    let next = now + (remaining / 3).max(Duration::from_millis(1));
    hold.scheduled.renew_at.store(next.as_nanos(), Ordering::SeqCst);
    if !end_turn(above, hold, now) {
        above.renewals().put(slice::from_ref(hold));
    }
}

/// Tells the holder, and lets the others of this process ask the store again.
fn lost<A: Above>(above: &Arc<A>, hold: &Arc<Hold>, why: &str) {
    if hold.is_closed() {
        return;
    }
    hold.lose();
    above.renewals().remove(hold);
    if hold.end_retention(Instant::now()).is_some() {
        tracing::debug!(key = %hold.key(), why, "lost while it was kept for `hold_at_least`");
    } else {
        static LOST: Burst = Burst::new();
        let key = hold.key();
        LOST.log(
            why,
            key,
            || tracing::warn!(%key, why, "lock lost"),
            |lost, key| {
                tracing::warn!(lost, key, "more locks lost for the same reason; the last one is named");
            },
        );
    }
    for turn in hold.others() {
        turn.invalidate();
    }
    above.lost(hold);
}

#[cfg(test)]
mod tests;
