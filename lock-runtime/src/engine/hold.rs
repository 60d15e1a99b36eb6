//! A hold, and its turns: one for each of its holders in this process.

use std::{
    any::Any,
    future::pending,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    FencingToken, LockError, LockErrorKind, LockKey,
    backend::{Held, LockId},
    engine::{
        in_store::InStore,
        loss::Cause,
        schedule::{FAILED, NOT_SENT, Scheduled, UNANSWERED},
        terms::{Origin, Terms},
        waiters::Waiters,
    },
    metrics::HoldEnd,
    process::Process,
    sync::{check_or_wait, lock},
    time::{
        clock::{self, Instant},
        deadline::min_validity,
    },
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
        if self.is_valid(now) { self.deadline().saturating_duration_since(now) } else { Duration::ZERO }
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

/// One holder's part of a [`Hold`], from the time at which the holder gets the lock until the holder leaves the lock.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) hold: Arc<Hold>,
    pub(crate) token: FencingToken,
    phase: AtomicU8,
    /// The earliest time at which the turn allows the lock's release, in nanoseconds. `hold_at_least` sets this time,
    /// and an earlier drop of the guard does not change it.
    retained_until: AtomicU64,
    /// The number of guards by which the holder has re-entered the lock, and which still exist.
    reentered: AtomicU32,
}

/// The phases of a [`Turn`].
const ACTIVE: u8 = 0;
/// The holder must stop, but has not left yet: another lock of the same guard was lost.
const INVALID: u8 = 1;
const OVER: u8 = 2;

impl Turn {
    pub(crate) fn first(hold: Arc<Hold>, token: FencingToken) -> Arc<Self> {
        Arc::new(Self {
            hold,
            token,
            phase: AtomicU8::new(ACTIVE),
            retained_until: AtomicU64::new(0),
            reentered: AtomicU32::new(0),
        })
    }

    /// Counts that the holder re-enters the lock.
    pub(crate) fn reenter(&self) {
        self.count_holds(|reentered| reentered.saturating_add(1));
    }

    /// Counts that a guard by which the holder had re-entered the lock is dropped.
    pub(crate) fn leave_reentered(&self) {
        self.count_holds(|reentered| reentered.saturating_sub(1));
    }

    /// Changes the number of guards by which the holder has re-entered the lock, and reports to the store how many
    /// times the holder has the lock: once for each of these guards, and once for the first guard.
    fn count_holds(&self, change: impl FnOnce(u32) -> u32) {
        let Some(lease) = self.hold.in_store.lease() else { return };
        // A guard by which the lock was re-entered may outlast its turn.
        if !self.hold.is_here() || self.is_over() {
            return;
        }
        // The mutex stays locked during the call, so that the store gets the numbers in the order of the changes.
        let _extra = self.hold.extra();
        let reentered = change(self.reentered.load(Ordering::Relaxed));
        self.reentered.store(reentered, Ordering::Relaxed);
        lease.count_holds(reentered.saturating_add(1));
    }

    /// Prevents the lock's release before `until`, even if the turn's guard is dropped sooner.
    pub(crate) fn retain_until(&self, until: Instant) {
        self.retained_until.fetch_max(until.as_nanos(), Ordering::AcqRel);
        self.hold.retained_until.fetch_max(until.as_nanos(), Ordering::AcqRel);
    }

    /// Returns the earliest time at which the turn allows the lock's release.
    pub(crate) fn retained_until(&self) -> Instant {
        Instant::from_nanos(self.retained_until.load(Ordering::Acquire))
    }

    /// Retains the hold without a guard until [`retained_until`](Self::retained_until).
    ///
    /// The caller has to call `Renewals::turn_moved` afterwards.
    pub(crate) fn retain(self: &Arc<Self>, permit: RetentionPermit) {
        // The end of the turn is moved first, so that the renewal job does not end the retention at the old end.
        self.hold.set_turn_ends(self.retained_until());
        self.hold.extra().get_or_insert_default().retained = Some((Arc::clone(self), permit));
    }

    /// Creates the next holder's turn, once this turn is over; `None` if the tokens of the grant are used up.
    ///
    /// The caller has to call `Renewals::turn_moved` afterwards.
    pub(crate) fn next(&self, now: Instant, max_hold: Duration) -> Option<Arc<Self>> {
        let token = self.token.successor()?;
        let hold = &self.hold;
        hold.set_turn_ends(hold.terms.turn_ends(now, max_hold, hold.deadline()));
        Some(Self::first(Arc::clone(hold), token))
    }

    /// Returns the deadline of the turn; a renewal may move it later.
    pub(crate) fn deadline(&self) -> Instant {
        self.hold.deadline().min(self.hold.turn_ends())
    }

    pub(crate) fn is_valid(&self, now: Instant) -> bool {
        !self.is_over() && self.is_covered(now)
    }

    /// Returns whether the hold can be relied on for this turn at `now`, even if the turn is over.
    pub(crate) fn is_covered(&self, now: Instant) -> bool {
        // `is_here` is called before `Hold::is_valid`, because a forked child must not wait for the hold's mutex, which
        // may have been locked at the fork.
        now < self.hold.turn_ends() && self.hold.is_here() && self.hold.is_valid(now)
    }

    pub(crate) fn remaining(&self, now: Instant) -> Duration {
        if self.is_valid(now) { self.deadline().saturating_duration_since(now) } else { Duration::ZERO }
    }

    /// Returns whether the holder has left or must stop, even if the hold is still valid.
    fn is_over(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= INVALID
    }

    /// Notifies the holder to stop, because another lock of the same guard was lost.
    ///
    /// Until the holder has left, the lock is not released: the holder's code still runs, at least to its next await.
    pub(crate) fn invalidate(&self) {
        if self.phase.fetch_max(INVALID, Ordering::AcqRel) < INVALID {
            self.hold.changed.notify_waiters();
        }
    }

    /// Ends the turn after its holder has left; returns true for the first call only.
    pub(crate) fn end(&self) -> bool {
        let first = self.phase.swap(OVER, Ordering::AcqRel) != OVER;
        if first {
            self.hold.changed.notify_waiters();
        }
        first
    }

    /// Returns how the use of the lock ends for a holder that leaves at `now` without a release, and for how long the
    /// lock's deadline has passed, if it has. From the deadline on, another client may have got the lock.
    pub(crate) fn left_at(&self, now: Instant) -> (HoldEnd, Option<Duration>) {
        let deadline = self.hold.deadline();
        // The deadline of a session that has ended is zero, so that the time since the deadline is not known.
        let late = match deadline.as_nanos() {
            0 => Some(Duration::ZERO),
            _ => (now > deadline).then(|| now.saturating_duration_since(deadline)),
        };
        let end = if self.is_valid(now) {
            HoldEnd::Dropped
        } else if matches!(self.hold.cause(now), Cause::MaxHold) {
            HoldEnd::MaxHold
        } else {
            HoldEnd::Lost
        };
        (end, late)
    }

    /// Completes when the turn is no longer valid, at its deadline at the latest.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn lost(&self) {
        loop {
            let is_lost = || (!self.is_valid(Instant::now())).then_some(());
            tokio::select! {
                biased;
                lost = check_or_wait(&self.hold.changed, is_lost) => if lost.is_some() { return },
                // The deadline is read after the check above, so that a change of the deadline in between is not
                // missed.
                () = async { clock::sleep_until(self.deadline()).await } => {}
            }
        }
    }

    /// Completes when a task of this process, or another client as far as the store knows, waits for the lock. Never
    /// completes once the turn is no longer valid.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn wanted(&self) {
        tokio::select! {
            biased;
            // The waiters of a later turn of the same hold are none of this turn's.
            () = self.lost() => pending().await,
            () = self.hold.wanted_here() => {}
            () = self.hold.in_store.wanted() => {}
        }
    }

    /// Returns the error that states why this turn is not valid.
    pub(crate) fn loss(&self) -> LockError {
        let (phase, now) = (self.phase.load(Ordering::Acquire), Instant::now());
        let why = if phase == OVER {
            "lost: the section that it was held for has ended, and its hold with it"
        } else if !self.hold.is_here() {
            "lost: it is held by the process from which this one was forked"
        } else if phase == INVALID && self.is_covered(now) {
            "lost: another of the locks held with it was lost"
        } else {
            return self.hold.cause(now).error(self.hold.key());
        };
        LockError::new(LockErrorKind::Lost, why).with_key(self.hold.key())
    }
}

/// Returns why turns that are held together cannot be relied on. The error is about the turn whose loss ended the
/// others.
pub(crate) fn loss<'a>(held: impl Iterator<Item = &'a Arc<Turn>>) -> LockError {
    let now = Instant::now();
    let cause = held.min_by_key(|turn| (turn.is_valid(now), turn.is_covered(now)));
    cause.expect("no guard is without a lock").loss()
}

#[cfg(test)]
mod tests;
