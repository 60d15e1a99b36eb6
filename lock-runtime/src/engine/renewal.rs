//! The renewal job: one job per store renews the due leases in few round trips, and detects losses.
//!
//! There is no task and no timer per lock. All holds are in one schedule, ordered by the times at which they are due.
//! Each call to the store is a task of its own, so a call that hangs delays only the renewals in that call.

mod early;

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, MutexGuard, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::sync::Notify;

use self::early::Early;
use crate::{
    backend::{LeaseId, LockId, Loss, LossNotifier, Renew, Renewal, RenewsEarly},
    background,
    engine::{hold::Hold, loss::Cause},
    metrics::{Metrics, Renewed},
    sync::Sharded,
    time::{
        clock::{self, Instant},
        renewal::{renewal_due, renewal_limit},
    },
};

/// Upper bound on the leases renewed in one call to the store. If a call is not answered in time, none of its leases
/// counts as renewed. If very many leases are due at once, after an outage or on a slow machine, this bound divides the
/// leases among several calls, so that some leases are renewed even if one call fails.
const MAX_LEASES_PER_CALL: usize = 1_024;

/// Upper bound on the job's sleep while the job has a hold. The timers of the runtime stand still while the machine is
/// suspended. Within this time after the machine has resumed, the job finds the leases that ended meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Upper bound on the job's sleep without a hold, after which the job checks whether the engine still exists.
const LONGEST_IDLE_SLEEP: Duration = Duration::from_secs(60);

/// The part of the engine that the renewals call: it cleans up after the losses that the renewals detect.
pub(crate) trait LossHandler: Send + Sync + 'static {
    /// Returns the renewals, which live as long as the engine.
    fn renewals(&self) -> &Arc<Renewals>;

    fn metrics(&self) -> &Metrics;

    /// Returns the part of the store that renews leases, if the store has one.
    fn renewal(&self) -> Option<&dyn Renew>;

    /// Ends the retention of the hold's turn, if the time of the retention has passed; returns whether a retention
    /// ended.
    fn end_retention(&self, hold: &Arc<Hold>) -> bool;

    /// Cleans up after a lost hold, whose holder has been notified. `was_retained` says that the holder had left already.
    fn lost(&self, hold: &Arc<Hold>, was_retained: bool);
}

#[derive(Debug)]
pub(crate) struct Renewals {
    /// The id of a hold selects its shard.
    schedule: Sharded<Schedule>,
    /// When the job checks the due holds next, in nanoseconds; [`Instant::FAR_FUTURE`] while there is nothing to check.
    /// This time is made earlier only while the shard of the due hold is locked.
    check_at: AtomicU64,
    /// Notifies the job that a hold is due before the job's next check.
    earlier: Notify,
    started: AtomicBool,
    ids: AtomicU64,
    /// The renewals for which the store has asked.
    early: Early,
}

/// The holds of one shard, by the times at which they are due, then by their ids.
#[derive(Debug, Default)]
struct Schedule {
    due: BTreeMap<(u64, u64), Arc<Hold>>,
}

impl Default for Renewals {
    fn default() -> Self {
        Self {
            schedule: Sharded::default(),
            check_at: AtomicU64::new(Instant::FAR_FUTURE.as_nanos()),
            earlier: Notify::new(),
            started: AtomicBool::new(false),
            ids: AtomicU64::new(0),
            early: Early::default(),
        }
    }
}

impl Renewals {
    /// Locks the shard of the schedule that has this hold.
    fn schedule(&self, hold: &Hold) -> MutexGuard<'_, Schedule> {
        self.schedule.at(hold.scheduled.id.load(Ordering::Relaxed))
    }

    /// Returns when the job checks the due holds next.
    fn check_at(&self) -> Instant {
        Instant::from_nanos(self.check_at.load(Ordering::SeqCst))
    }

    /// Starts to renew a hold, and to watch for its loss.
    pub(crate) fn add<H: LossHandler>(handler: &Arc<H>, hold: &Arc<Hold>, now: Instant) {
        let this = handler.renewals();
        let id = this.ids.fetch_add(1, Ordering::Relaxed);
        hold.scheduled.id.store(id, Ordering::Relaxed);
        plan_renewal(hold, now);
        if this.put(hold) {
            background::handle().spawn(Job(Arc::downgrade(handler)).run());
        }
        if let Some(session) = hold.in_store.session() {
            let (handler, hold) = (Arc::downgrade(handler), Arc::downgrade(hold));
            let notify = move |loss: Loss<'_>| {
                if let (Some(handler), Some(hold)) = (handler.upgrade(), hold.upgrade()) {
                    let cause = match loss {
                        Loss::Lost(why) => Cause::Reason(why.into()),
                        Loss::Revoked => Cause::Revoked,
                    };
                    lost(&handler, &hold, cause);
                }
            };
            Arc::clone(session).on_loss(LossNotifier(Box::new(notify)));
        }
    }

    /// Stops renewing and watching a hold.
    pub(crate) fn remove(&self, hold: &Hold) {
        let mut schedule = self.schedule(hold);
        hold.close();
        schedule.take(hold);
    }

    /// Makes the next check of a hold earlier, if the end of its turn was moved and the check would come too late. Only
    /// in that case is the hold's shard locked.
    pub(crate) fn turn_moved(&self, hold: &Arc<Hold>) {
        // A hold that the job is checking has no entry (`due` is 0). The job reads the end of the turn when it puts the
        // hold back.
        let is_late = |due| due != 0 && due > next_in_turn(hold).as_nanos();
        if is_late(hold.scheduled.due.load(Ordering::SeqCst)) {
            let mut schedule = self.schedule(hold);
            if is_late(hold.scheduled.due.load(Ordering::SeqCst)) {
                schedule.take(hold);
                self.insert(&mut schedule, hold, next_in_turn(hold));
            }
        }
    }

    /// Puts a hold into the schedule, unless the hold is closed; returns whether the job must be started.
    fn put(&self, hold: &Arc<Hold>) -> bool {
        let mut schedule = self.schedule(hold);
        if hold.is_closed() {
            return false;
        }
        // While `due` has this value, a caller that moves the end of the turn finds that the check would come too late,
        // and makes the check earlier.
        hold.scheduled.due.store(u64::MAX, Ordering::SeqCst);
        // A hold is not renewed after the end of its turn. If the end has passed and the loss of the turn was reported,
        // only the deadline is left to check. If the end was moved since that report, the new end is checked as well,
        // at once if the new end has passed.
        let ends = hold.turn_ends();
        let is_behind =
            ends.has_passed() && hold.scheduled.end_seen.load(Ordering::SeqCst) == ends.as_nanos();
        let due = if is_behind { hold.deadline() } else { next_in_turn(hold).min(hold.deadline()) };
        self.insert(&mut schedule, hold, due);
        !self.started.load(Ordering::Relaxed) && !self.started.swap(true, Ordering::Relaxed)
    }

    fn insert(&self, schedule: &mut Schedule, hold: &Arc<Hold>, due: Instant) {
        let due_nanos = due.as_nanos().max(1);
        hold.scheduled.due.store(due_nanos, Ordering::SeqCst);
        schedule.due.insert((due_nanos, hold.scheduled.id.load(Ordering::Relaxed)), Arc::clone(hold));
        // The job resets `check_at` before it goes through the shards: either the job finds this hold, or this call
        // notifies the job.
        if due < self.check_at() && due.as_nanos() < self.check_at.fetch_min(due.as_nanos(), Ordering::SeqCst)
        {
            self.earlier.notify_one();
        }
    }

    /// Takes the due holds, and plans the next check.
    fn take_due(&self, now: Instant) -> Vec<Arc<Hold>> {
        self.check_at.store(Instant::FAR_FUTURE.as_nanos(), Ordering::SeqCst);
        let early = self.early.take(now);
        if let Some(next) = early.next {
            self.check_at.fetch_min(next.as_nanos(), Ordering::SeqCst);
        }
        let mut all = Vec::new();
        for mut schedule in self.schedule.each() {
            schedule.hasten(&early.names, now);
            let later = schedule.due.split_off(&(now.as_nanos() + 1, 0));
            let due = std::mem::replace(&mut schedule.due, later);
            for hold in due.values() {
                hold.scheduled.due.store(0, Ordering::SeqCst);
            }
            if let Some(((at, _), _)) = schedule.due.first_key_value() {
                self.check_at.fetch_min(*at, Ordering::SeqCst);
            }
            all.extend(due);
        }
        all.sort_unstable_by_key(|(at, _)| *at);
        all.into_iter().map(|(_, hold)| hold).collect()
    }

    /// Returns the number of holds in the schedule.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.schedule.each().map(|schedule| schedule.due.len()).sum()
    }
}

impl RenewsEarly for Renewals {
    fn renew_early(&self, stored: &str) {
        let due = self.early.add(stored, Instant::now()).as_nanos();
        if due < self.check_at.fetch_min(due, Ordering::SeqCst) {
            self.earlier.notify_one();
        }
    }
}

impl Schedule {
    /// Makes the leases of the locks with these stored names due at `now`, if they are renewed at all.
    fn hasten(&mut self, names: &HashSet<Box<str>>, now: Instant) {
        if names.is_empty() {
            return;
        }
        let is_meant = |hold: &&Arc<Hold>| names.contains(hold.key().stored());
        let is_renewed = |hold: &&Arc<Hold>| hold.terms.auto_renew && hold.in_store.lease().is_some();
        let leases: Vec<_> = self.due.values().filter(is_meant).filter(is_renewed).map(Arc::clone).collect();
        for hold in leases {
            self.take(&hold);
            hold.scheduled.renew_at.store(now.as_nanos(), Ordering::SeqCst);
            hold.scheduled.due.store(now.as_nanos(), Ordering::SeqCst);
            self.due.insert((now.as_nanos(), hold.scheduled.id.load(Ordering::Relaxed)), hold);
        }
    }

    fn take(&mut self, hold: &Hold) {
        let due = hold.scheduled.due.swap(0, Ordering::SeqCst);
        self.due.remove(&(due, hold.scheduled.id.load(Ordering::Relaxed)));
    }
}

/// Returns when a hold has to be checked next during its turn: when its renewal is due, or at the end of the turn.
fn next_in_turn(hold: &Hold) -> Instant {
    Instant::from_nanos(hold.scheduled.renew_at.load(Ordering::SeqCst)).min(hold.turn_ends())
}

/// Decides when a hold that is valid at `now` is renewed next.
fn plan_renewal(hold: &Hold, now: Instant) {
    if hold.terms.auto_renew && hold.in_store.lease().is_some() {
        let due = renewal_due(now, hold.remaining(now), hold.terms.ttl);
        hold.scheduled.renew_at.store(due.as_nanos(), Ordering::SeqCst);
    }
}

/// The job, which ends when the engine is gone. If the job panics, for example in a subscriber of the log, the job
/// starts again.
struct Job<H: LossHandler>(Weak<H>);

impl<H: LossHandler> Job<H> {
    async fn run(self) {
        loop {
            let Some(renewals) = self.0.upgrade().map(|handler| Arc::clone(handler.renewals())) else {
                return;
            };
            let next = renewals.check_at();
            let longest = if next < Instant::FAR_FUTURE { LONGEST_SLEEP } else { LONGEST_IDLE_SLEEP };
            tokio::select! {
                biased;
                () = clock::sleep_until(next.min(Instant::now() + longest)) => {}
                // The notification only shortens the sleep, and does not start a check. If the hold that is due earlier
                // has left already, a check would find the schedule empty and set `check_at` to the far future, so that
                // each new hold would wake this thread.
                () = renewals.earlier.notified() => continue,
            }
            let Some(handler) = self.0.upgrade() else { return };
            let now = Instant::now();
            check_due(&handler, handler.renewals().take_due(now), now);
        }
    }
}

impl<H: LossHandler> Drop for Job<H> {
    fn drop(&mut self) {
        if thread::panicking() {
            background::handle().spawn(Self(Weak::clone(&self.0)).run());
        }
    }
}

fn check_due<H: LossHandler>(handler: &Arc<H>, due: Vec<Arc<Hold>>, now: Instant) {
    // The batches are searched from the newest: there are few of them, and most holds belong to the same batch as the
    // hold before them.
    let mut to_renew: Vec<(_, Vec<_>)> = Vec::new();
    let mut others = Vec::new();
    for hold in due {
        let is_in_turn = hold.is_valid(now) && now < hold.turn_ends();
        if !is_in_turn || hold.scheduled.renew_at.load(Ordering::SeqCst) > now.as_nanos() {
            others.push(hold);
            continue;
        }
        let batch = (batch(&hold, now), lane(handler, &hold));
        match to_renew.iter_mut().rev().find(|(other, _)| *other == batch) {
            Some((_, holds)) => holds.push(hold),
            None => to_renew.push((batch, vec![hold])),
        }
    }
    for (_, mut holds) in to_renew {
        while !holds.is_empty() {
            let rest = holds.split_off(holds.len().min(MAX_LEASES_PER_CALL));
            let renewal = renew(Arc::clone(handler), std::mem::replace(&mut holds, rest));
            tokio::spawn(renewal);
        }
    }
    let mut unchecked = Unchecked { renewals: handler.renewals(), holds: others.into_iter() };
    for hold in unchecked.holds.by_ref() {
        if hold.is_valid(now) {
            put_back(handler, &hold, now);
        } else {
            lost(handler, &hold, hold.cause(now));
        }
    }
}

/// Due holds that are not checked yet. Dropping this value, by a panic during the check of another hold, leaves these
/// holds to the next check.
struct Unchecked<'a> {
    renewals: &'a Renewals,
    holds: std::vec::IntoIter<Arc<Hold>>,
}

impl Drop for Unchecked<'_> {
    fn drop(&mut self) {
        for hold in self.holds.as_slice() {
            self.renewals.put(hold);
        }
    }
}

/// Checks the end of a hold's turn, and puts the hold back into the schedule unless the hold is closed. If the end has
/// passed, a retained turn ends, and a turn whose guard still exists is lost. If such a lost turn is the turn of a
/// session lock, the whole hold is lost.
fn put_back<H: LossHandler>(handler: &Arc<H>, hold: &Arc<Hold>, now: Instant) {
    let ends = hold.turn_ends();
    let mut is_lost = false;
    if now >= ends && !handler.end_retention(hold) {
        if hold.in_store.session().is_some() {
            return lost(handler, hold, hold.cause(now));
        }
        // If the holder has just left, there is no loss to report.
        is_lost = hold.turn_ends() == ends && !hold.is_closed() && hold.is_first_report_of(ends);
    }
    // A lease that was handed over at the end of its retention is renewed for its next holder. A released hold is
    // closed, and not put back.
    handler.renewals().put(hold);
    if is_lost {
        for turn in hold.linked_turns() {
            turn.invalidate();
        }
        hold.cause(now).log(hold.key());
    }
}

/// Returns the batch in which a lease is renewed. The leases of a batch have the same length and about the same time
/// left, because the lease with the least time left sets the time limit of the call.
fn batch(hold: &Hold, now: Instant) -> (Duration, u32) {
    (hold.terms.ttl, hold.remaining(now).as_millis().max(1).ilog2())
}

/// Returns which leases may wait for the hold's renewal.
fn lane<H: LossHandler>(handler: &Arc<H>, hold: &Hold) -> u64 {
    let lease = hold.in_store.lease();
    lease.zip(handler.renewal()).map_or(0, |(lease, store)| store.lane(lease.id()))
}

/// Renews leases of one [`batch`] in one call to the store.
async fn renew<H: LossHandler>(handler: Arc<H>, holds: Vec<Arc<Hold>>) {
    let now = Instant::now();
    let remaining = holds.iter().map(|hold| hold.remaining(now)).min().unwrap_or_default();
    let mut open =
        NotPutBack { handler: &handler, renewed: Vec::with_capacity(holds.len()), holds: holds.into_iter() };
    let leases = open.holds.as_slice().iter().filter_map(|hold| hold.in_store.lease());
    let ids: Vec<LeaseId> = leases.map(|lease| lease.id().clone()).collect();
    let Some(store) = handler.renewal() else {
        for hold in open.holds.by_ref() {
            let why = "its store grants leases but does not renew them (`Backend::renewal`)";
            lost(&handler, &hold, Cause::Reason(why.into()));
        }
        return;
    };
    for hold in open.holds.as_slice() {
        hold.renewal_sent();
    }
    let answers = tokio::time::timeout(renewal_limit(remaining), store.renew(&ids)).await;
    for answer in answers.unwrap_or_default() {
        let Some(hold) = open.holds.next() else { return };
        let left = hold.remaining(Instant::now());
        let renewed = match answer {
            Renewal::Renewed(_) if !left.is_zero() => Renewed::Yes,
            Renewal::Renewed(_) | Renewal::NotHeld => Renewed::Lost,
            Renewal::Revoked => Renewed::Revoked,
            Renewal::Unknown(_) => Renewed::Failed,
        };
        record(&handler, &hold, renewed, left);
        match answer {
            Renewal::Renewed(until) if hold.renewed(until) => open.renewed.push(hold),
            Renewal::Renewed(_) => lost(&handler, &hold, hold.cause(Instant::now())),
            Renewal::NotHeld => lost(&handler, &hold, Cause::GivenAway),
            Renewal::Revoked => lost(&handler, &hold, Cause::Revoked),
            Renewal::Unknown(error) => {
                hold.renewal_failed(&error);
                try_again(&handler, &hold);
                tracing::debug!(key = %hold.key(), %error, "renewal failed, trying again while the lease lasts");
            }
        }
    }
}

/// The holds of one call that were not put back into the schedule yet: the renewed holds, and the holds whose renewal
/// is not answered yet.
///
/// Dropping this value, also by a panic in the store, puts the holds back into the schedule. The job then treats the
/// holds whose deadline has passed as lost.
struct NotPutBack<'a, H: LossHandler> {
    handler: &'a Arc<H>,
    renewed: Vec<Arc<Hold>>,
    /// The holds whose renewal is not answered yet.
    holds: std::vec::IntoIter<Arc<Hold>>,
}

impl<H: LossHandler> Drop for NotPutBack<'_, H> {
    fn drop(&mut self) {
        let now = Instant::now();
        for hold in &self.renewed {
            plan_renewal(hold, now);
            self.handler.renewals().put(hold);
        }
        for hold in self.holds.as_slice() {
            record(self.handler, hold, Renewed::Unanswered, hold.remaining(now));
            try_again(self.handler, hold);
        }
        for hold in self.holds.as_slice() {
            tracing::debug!(key = %hold.key(), "renewal was not answered, trying again while the lease lasts");
        }
    }
}

/// Records a renewal of a lease that has this validity left. If the lock was released during the renewal, the result is
/// not recorded: it says nothing about the lock.
fn record<H: LossHandler>(handler: &Arc<H>, hold: &Hold, renewed: Renewed, left: Duration) {
    if hold.is_closed() {
        return;
    }
    let LockId { key, mode } = &hold.lock;
    handler.metrics().meter(key.class(), mode.name()).renewed(renewed, left);
}

fn try_again<H: LossHandler>(handler: &Arc<H>, hold: &Arc<Hold>) {
    let now = Instant::now();
    let remaining = hold.remaining(now);
    let next = now + (remaining / 3).max(Duration::from_millis(1));
    hold.scheduled.renew_at.store(next.as_nanos(), Ordering::SeqCst);
    handler.renewals().put(hold);
}

/// Notifies the holder of a loss, and lets the waiters of this process ask the store again.
fn lost<H: LossHandler>(handler: &Arc<H>, hold: &Arc<Hold>, cause: Cause) {
    if hold.is_closed() {
        return;
    }
    hold.lose(cause);
    handler.renewals().remove(hold);
    let now = Instant::now();
    let was_retained = hold.end_retention(now).is_some();
    let is_first_report = hold.is_first_report();
    for turn in hold.linked_turns() {
        turn.invalidate();
    }
    handler.lost(hold, was_retained);
    // The log comes last, because its subscriber may panic.
    if was_retained {
        let why = hold.cause(now);
        tracing::debug!(key = %hold.key(), %why, "lost while it was kept for `hold_at_least`");
    } else if is_first_report {
        hold.cause(now).log(hold.key());
    }
}

#[cfg(test)]
mod tests;
