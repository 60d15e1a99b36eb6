//! The turns of a hold: one for each of its holders in this process.

use std::{
    future::pending,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use super::{Hold, RetentionPermit};
use crate::{
    FencingToken, LockError, LockErrorKind,
    engine::loss::Cause,
    metrics::HoldEnd,
    sync::check_or_wait,
    time::clock::{self, Instant},
};

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
    /// The beginning of the period that the holder runs, if it runs one.
    pub(crate) period: OnceLock<SystemTime>,
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
            period: OnceLock::new(),
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
        // The deadline is read first, as in `Hold::remaining`.
        let left = self.deadline().saturating_duration_since(now);
        if self.is_valid(now) { left } else { Duration::ZERO }
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
