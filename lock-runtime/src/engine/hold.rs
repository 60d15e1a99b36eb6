//! A hold: one grant of the store.

mod turn;

pub(crate) use self::turn::{Turn, loss};

use std::{
    any::Any,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    LockError, LockKey,
    backend::{Held, LockId},
    engine::{
        in_store::InStore,
        loss::Cause,
        schedule::{FAILED, NOT_SENT, Scheduled, UNANSWERED},
        terms::{Origin, Terms},
        waiters::Waiters,
    },
    process::Process,
    sync::{check_or_wait, lock},
    time::{clock::Instant, deadline::min_validity},
};

/// One grant of the store, from the store's answer until the lock is released or lost.
#[derive(Debug)]
pub(crate) struct Hold {
    origin: Origin,
    pub(crate) lock: LockId,
    pub(crate) in_store: InStore,
    pub(crate) terms: Terms,
    /// The end of the current turn, in nanoseconds: `max_hold` after its beginning or, without renewal, the deadline,
    /// whichever is sooner. Renewals do not move this end. If the turn is retained after its guard has left, the end is
    /// moved to the time at which `hold_at_least` is over.
    turn_ends: AtomicU64,
    /// Whether the turn ends with the `ttl` of a lease that is not renewed, rather than after `max_hold`.
    ends_with_ttl: bool,
    /// Whether the loss of the hold was noticed. Never reset.
    lost: AtomicBool,
    /// Whether this process no longer renews the hold, because the hold is to be released or was lost.
    closed: AtomicBool,
    pub(super) scheduled: Scheduled,
    /// The earliest time at which the hold may be released, in nanoseconds: the latest time that any of its turns has
    /// asked for.
    retained_until: AtomicU64,
    /// Whether tasks of this process wait for the lock.
    waiters: Waiters,
    /// Notified when the hold is lost, when a turn ends or becomes invalid, and when tasks begin to wait.
    changed: Notify,
    /// The state that only few holds have; `None` in the other holds, so that they take less memory.
    extra: Mutex<Option<Box<Extra>>>,
}

/// The permit of a retained turn. It counts the lock as held, and keeps the engine alive, and with the engine the
/// renewal job.
pub(crate) type RetentionPermit = Box<dyn Any + Send + Sync>;

/// The state that only few holds have.
#[derive(Debug, Default)]
struct Extra {
    /// The turns of a guard of several locks, including a turn of this hold.
    linked: Option<Arc<[Weak<Turn>]>>,
    /// The turn that lasts for `hold_at_least` although its guard has left, and its permit.
    retained: Option<(Arc<Turn>, RetentionPermit)>,
    /// The error of the latest renewal that failed.
    failure: String,
    /// Why the hold was lost. Only the first cause is kept.
    cause: Option<Cause>,
}

impl Hold {
    pub(crate) fn new(
        held: Held,
        lock: LockId,
        terms: Terms,
        now: Instant,
        max_hold: Duration,
        origin: Origin,
    ) -> Arc<Self> {
        let (in_store, valid_until) = InStore::new(held, terms.ttl);
        let turn_ends = terms.turn_ends(now, max_hold, valid_until);
        Arc::new(Self {
            origin,
            lock,
            in_store,
            terms,
            turn_ends: AtomicU64::new(turn_ends.as_nanos()),
            ends_with_ttl: !terms.auto_renew && turn_ends == valid_until,
            lost: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            scheduled: Scheduled::new(),
            retained_until: AtomicU64::new(0),
            waiters: Waiters::none(),
            changed: Notify::new(),
            extra: Mutex::default(),
        })
    }

    fn extra(&self) -> MutexGuard<'_, Option<Box<Extra>>> {
        lock(&self.extra)
    }

    /// Links turns that are held together, including a turn of this hold: the loss of one of them ends the others.
    pub(crate) fn link_turns(&self, linked: &Arc<[Weak<Turn>]>) {
        self.extra().get_or_insert_default().linked = Some(Arc::clone(linked));
    }

    /// Returns the turns of other holds that are lost together with this hold.
    ///
    /// Some of these turns may be over already, if they were linked by the guard of an earlier turn.
    pub(crate) fn linked_turns(&self) -> Vec<Arc<Turn>> {
        let linked = self.extra().as_ref().and_then(|extra| extra.linked.clone());
        let turns = linked.iter().flat_map(|turns| turns.iter()).filter_map(Weak::upgrade);
        turns.filter(|turn| !std::ptr::eq(Arc::as_ptr(&turn.hold), self)).collect()
    }

    /// Returns the earliest time at which the hold may be released.
    pub(crate) fn retained_until(&self) -> Instant {
        Instant::from_nanos(self.retained_until.load(Ordering::Acquire))
    }

    /// Ends the retention of the hold's turn, if the time of the retention has passed or the hold is closed. Returns
    /// the turn and its permit.
    pub(crate) fn end_retention(&self, now: Instant) -> Option<(Arc<Turn>, RetentionPermit)> {
        let mut extra = self.extra();
        if now >= self.turn_ends() || self.is_closed() { extra.as_mut()?.retained.take() } else { None }
    }

    /// Records whether tasks of this process wait for the lock. The queue of the lock calls this method under its mutex.
    pub(super) fn set_waiters(&self, present: bool) {
        if self.waiters.set(present) {
            self.changed.notify_waiters();
        }
    }

    /// Completes when a task of this process waits for the lock.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn wanted_here(&self) {
        let is_wanted = || self.waiters.check().then_some(());
        while check_or_wait(&self.changed, is_wanted).await.is_none() {}
    }

    pub(crate) fn key(&self) -> &LockKey {
        &self.lock.key
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.in_store.deadline()
    }

    pub(crate) fn turn_ends(&self) -> Instant {
        Instant::from_nanos(self.turn_ends.load(Ordering::SeqCst))
    }

    /// Moves the end of the turn. The caller has to call `Renewals::turn_moved` afterwards.
    fn set_turn_ends(&self, ends: Instant) {
        // `SeqCst`, as in the schedule of renewals: either the renewal job reads the new end, or this thread reads the
        // time of the check that the job has planned.
        self.turn_ends.store(ends.as_nanos(), Ordering::SeqCst);
    }

    /// Returns whether the hold can be relied on at `now`.
    ///
    /// Once the deadline was found to have passed, the hold stays lost, even if a late answer would move the deadline.
    pub(crate) fn is_valid(&self, now: Instant) -> bool {
        let deadline = self.deadline();
        if now >= deadline && !self.lost.load(Ordering::Acquire) {
            self.lose(self.cause_at(deadline));
        }
        !self.lost.load(Ordering::Acquire)
    }

    /// Returns why the current turn is lost. The result is meaningless while the hold still [covers](Turn::is_covered)
    /// the turn at `now`.
    pub(crate) fn cause(&self, now: Instant) -> Cause {
        let lost = if self.is_valid(now) {
            None
        } else {
            self.extra().as_ref().and_then(|extra| extra.cause.clone())
        };
        lost.unwrap_or_else(|| self.end_of_turn())
    }

    fn end_of_turn(&self) -> Cause {
        if self.ends_with_ttl { Cause::TtlOver } else { Cause::MaxHold }
    }

    /// Returns why `deadline` has passed without having been moved.
    fn cause_at(&self, deadline: Instant) -> Cause {
        // A hold is not renewed after the end of its turn.
        if self.turn_ends() <= deadline {
            return self.end_of_turn();
        }
        match (&self.in_store, self.scheduled.renewal.load(Ordering::Acquire)) {
            (InStore::Session(_), _) if deadline == Instant::from_nanos(0) => Cause::SessionEnded,
            (InStore::Session(_), _) => Cause::SessionUnconfirmed,
            (InStore::Lease { .. }, FAILED) => {
                Cause::Failed(self.extra().as_ref().map_or_else(String::new, |extra| extra.failure.clone()))
            }
            (InStore::Lease { .. }, UNANSWERED) => Cause::Unanswered,
            (InStore::Lease { .. }, _) => Cause::NotAsked,
        }
    }

    /// Returns whether this call is the first to report the loss of the current turn. Only the first report is logged.
    pub(crate) fn is_first_report(&self) -> bool {
        self.is_first_report_of(self.turn_ends())
    }

    /// Returns whether this call is the first to report the loss of the turn that ends at `ends`. The turn may be over
    /// by now.
    pub(crate) fn is_first_report_of(&self, ends: Instant) -> bool {
        let ends = ends.as_nanos();
        self.scheduled.end_seen.swap(ends, Ordering::SeqCst) != ends
    }

    /// Returns whether this process acquired the hold. In a process that was forked since then, the hold belongs to the
    /// parent.
    pub(crate) fn is_here(&self) -> bool {
        self.origin.process.is_none_or(Process::is_this)
    }

    /// Returns the validity left at `now`.
    pub(crate) fn remaining(&self, now: Instant) -> Duration {
        // The deadline is read first: one that a session's heartbeat moves after a revocation must not count.
        let left = self.deadline().saturating_duration_since(now);
        if self.is_valid(now) { left } else { Duration::ZERO }
    }

    /// Returns the longest validity that the hold can have left: the `ttl`, or the session timeout if that is shorter.
    pub(crate) fn longest_validity(&self) -> Duration {
        let ttl = self.terms.ttl;
        ttl.min(self.origin.session_timeout.unwrap_or(ttl))
    }

    /// Returns whether enough validity is left at `now` for a holder whose turn may last for `max_hold`.
    pub(crate) fn has_enough_validity(&self, now: Instant, max_hold: Duration) -> bool {
        // A session lock without renewal ends with its `ttl`, however long the session lasts.
        let ttl_ends = match &self.in_store {
            InStore::Session(_) if !self.terms.auto_renew => self.turn_ends(),
            _ => Instant::FAR_FUTURE,
        };
        let remaining = self.remaining(now).min(ttl_ends.saturating_duration_since(now));
        !remaining.is_zero() && remaining >= min_validity(self.longest_validity().min(max_hold))
    }

    /// Records that a renewal is sent.
    pub(super) fn renewal_sent(&self) {
        // An earlier failure says more than a missing answer, so `FAILED` stays.
        let renewal = &self.scheduled.renewal;
        let _ = renewal.compare_exchange(NOT_SENT, UNANSWERED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Records that a renewal failed.
    pub(super) fn renewal_failed(&self, error: &LockError) {
        error.message().clone_into(&mut self.extra().get_or_insert_default().failure);
        self.scheduled.renewal.store(FAILED, Ordering::Release);
    }

    /// Records a successful renewal; returns whether its answer came in time.
    pub(crate) fn renewed(&self, valid_until: Instant) -> bool {
        let in_time = self.is_valid(Instant::now()) && !self.is_closed();
        if in_time && let InStore::Lease { deadline, .. } = &self.in_store {
            deadline.fetch_max(valid_until.as_nanos(), Ordering::AcqRel);
            self.scheduled.renewal.store(NOT_SENT, Ordering::Release);
        }
        in_time
    }

    /// Marks the hold as lost; returns true for the first call only.
    pub(crate) fn lose(&self, cause: Cause) -> bool {
        // The cause is set before `lost`, so that a caller that finds `lost` set finds the cause, too.
        self.extra().get_or_insert_default().cause.get_or_insert(cause);
        let first = !self.lost.swap(true, Ordering::AcqRel);
        if first {
            self.changed.notify_waiters();
        }
        first
    }

    /// Returns whether the hold was lost because an operator revoked it.
    pub(crate) fn is_revoked(&self) -> bool {
        self.extra().as_ref().is_some_and(|extra| extra.cause == Some(Cause::Revoked))
    }

    /// Closes the hold: this process no longer renews it.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns the time by which the hold must have ended in the store, if the hold is not renewed after `now`.
    pub(crate) fn gone_by(&self, now: Instant) -> Instant {
        self.in_store.gone_by(now, self.terms.ttl)
    }
}

#[cfg(test)]
mod tests;
