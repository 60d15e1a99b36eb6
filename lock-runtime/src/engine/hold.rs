//! A grant of the store, and the turns that holders inside this process take of it.

use std::{
    any::Any,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    FencingToken, LockError, LockErrorKind, LockKey,
    backend::{Held, Lease, Mode, Releasable, Session},
    engine::schedule::Scheduled,
    process::Process,
    sync::{check_or_wait, lock},
    time::{
        clock::{self, Instant},
        deadline,
    },
};

/// What a holder asked of the lease; it is passed on only to a waiter that asked for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) auto_renew: bool,
}

impl Terms {
    /// When a turn ends that is taken now.
    fn turn_ends(self, now: Instant, max_hold: Duration, valid_until: Instant) -> Instant {
        let longest = now + max_hold;
        if self.auto_renew { longest } else { longest.min(valid_until) }
    }
}

/// One grant of the store, from the answer until its release is sent.
#[derive(Debug)]
pub(crate) struct Hold {
    /// Only there it is valid; none where no other process sees the lock.
    process: Option<Process>,
    in_store: InStore,
    pub(crate) terms: Terms,
    /// When the present turn ends, however often the lease is renewed: `max_hold`, or `ttl` without renewal.
    turn_ends: AtomicU64,
    /// The loss was seen; there is no way back.
    lost: AtomicBool,
    /// A release was sent, or the store said that it is not ours: no more renewals, dead for this process.
    closed: AtomicBool,
    pub(super) scheduled: Scheduled,
    /// Until when it is not to be released, whichever turn asked for that.
    held_until: AtomicU64,
    changed: Notify,
    extra: Mutex<Extra>,
}

/// What counts a retained turn as held, and keeps the jobs of its store alive.
pub(crate) type RetentionPermit = Box<dyn Any + Send + Sync>;

/// What few holds have.
#[derive(Debug, Default)]
struct Extra {
    /// The turns of a guard of several locks, one of this hold among them.
    together: Option<Arc<[Weak<Turn>]>>,
    /// The turn that goes on without a guard, and what lives as long as that.
    retained: Option<(Arc<Turn>, RetentionPermit)>,
}

/// How the store remembers it, and until when it may be relied on.
#[derive(Debug)]
enum InStore {
    /// Renewals move the deadline.
    Lease { lease: Arc<dyn Lease>, deadline: AtomicU64 },
    /// The store moves the deadline.
    Session(Arc<dyn Session>),
}

impl Hold {
    pub(crate) fn new(held: Held, terms: Terms, max_hold: Duration, process: Option<Process>) -> Arc<Self> {
        let (in_store, valid_until) = match held {
            Held::Lease { lease, valid_until } => {
                (InStore::Lease { lease, deadline: AtomicU64::new(valid_until.as_nanos()) }, valid_until)
            }
            Held::Session { session, since } => {
                (InStore::Session(session), deadline::valid_until(since, terms.ttl))
            }
        };
        let turn_ends = terms.turn_ends(Instant::now(), max_hold, valid_until);
        Arc::new(Self {
            process,
            in_store,
            terms,
            turn_ends: AtomicU64::new(turn_ends.as_nanos()),
            lost: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            scheduled: Scheduled::new(),
            held_until: AtomicU64::new(0),
            changed: Notify::new(),
            extra: Mutex::default(),
        })
    }

    fn extra(&self) -> MutexGuard<'_, Extra> {
        lock(&self.extra)
    }

    /// From here on the loss of one of these turns, one of this hold among them, is to be the end of the others.
    pub(crate) fn hold_with(&self, together: &Arc<[Weak<Turn>]>) {
        self.extra().together = Some(Arc::clone(together));
    }

    /// The turns of other holds that end with this one. Some may be over: the guard of an earlier turn had them.
    pub(crate) fn others(&self) -> Vec<Arc<Turn>> {
        let together = self.extra().together.clone();
        let turns = together.iter().flat_map(|turns| turns.iter()).filter_map(Weak::upgrade);
        turns.filter(|turn| !std::ptr::eq(Arc::as_ptr(&turn.hold), self)).collect()
    }

    /// Until when it is not to be released.
    pub(crate) fn held_until(&self) -> Instant {
        Instant::from_nanos(self.held_until.load(Ordering::Acquire))
    }

    /// Ends the retention of a turn without a guard, when its time is over or the hold is.
    pub(crate) fn end_retention(&self, now: Instant) -> Option<(Arc<Turn>, RetentionPermit)> {
        let mut extra = self.extra();
        if now >= self.turn_ends() || self.is_closed() { extra.retained.take() } else { None }
    }

    pub(crate) fn key(&self) -> &LockKey {
        self.in_store().key()
    }

    pub(crate) fn deadline(&self) -> Instant {
        match &self.in_store {
            InStore::Lease { deadline, .. } => Instant::from_nanos(deadline.load(Ordering::Acquire)),
            InStore::Session(session) => session.valid_until(),
        }
    }

    pub(crate) fn turn_ends(&self) -> Instant {
        Instant::from_nanos(self.turn_ends.load(Ordering::SeqCst))
    }

    /// Moves the end of the turn; the renewals have to be told afterwards.
    fn set_turn_ends(&self, ends: Instant) {
        // In one order with the schedule of renewals: either it sees the new end, or we see what it has planned.
        self.turn_ends.store(ends.as_nanos(), Ordering::SeqCst);
    }

    /// Whether the lease may be relied on at `now`. A deadline once seen to have passed stays passed, also when a
    /// late answer would move it.
    pub(crate) fn is_valid(&self, now: Instant) -> bool {
        if now >= self.deadline() {
            self.lose();
        }
        !self.lost.load(Ordering::Acquire)
    }

    /// Whether this process took it, and not the one from which it was forked.
    pub(crate) fn is_here(&self) -> bool {
        self.process.is_none_or(Process::is_this)
    }

    /// What is left at `now`.
    pub(crate) fn remaining(&self, now: Instant) -> Duration {
        if self.is_valid(now) { self.deadline().saturating_duration_since(now) } else { Duration::ZERO }
    }

    /// What a fresh grant has left at `now`: of a session that is not to be renewed, not more than until the `ttl` is over.
    pub(crate) fn remaining_unrenewed(&self, now: Instant) -> Duration {
        let ttl_ends = match &self.in_store {
            InStore::Session(_) if !self.terms.auto_renew => self.turn_ends(),
            _ => Instant::FAR_FUTURE,
        };
        self.remaining(now).min(ttl_ends.saturating_duration_since(now))
    }

    /// A renewal was answered; returns whether it still counts.
    pub(crate) fn renewed(&self, valid_until: Instant) -> bool {
        let in_time = self.is_valid(Instant::now()) && !self.is_closed();
        if in_time && let InStore::Lease { deadline, .. } = &self.in_store {
            deadline.fetch_max(valid_until.as_nanos(), Ordering::AcqRel);
        }
        in_time
    }

    /// Marks the loss; true the first time.
    pub(crate) fn lose(&self) -> bool {
        let first = !self.lost.swap(true, Ordering::AcqRel);
        if first {
            self.changed.notify_waiters();
        }
        first
    }

    /// From here on the lease is dead for this process.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// What has to be renewed and may be passed on; none when it lives as long as a session.
    pub(crate) fn lease(&self) -> Option<&Arc<dyn Lease>> {
        match &self.in_store {
            InStore::Lease { lease, .. } => Some(lease),
            InStore::Session(_) => None,
        }
    }

    pub(crate) fn session(&self) -> Option<&Arc<dyn Session>> {
        match &self.in_store {
            InStore::Lease { .. } => None,
            InStore::Session(session) => Some(session),
        }
    }

    /// The store's own part of it.
    pub(crate) fn in_store(&self) -> &dyn Releasable {
        match &self.in_store {
            InStore::Lease { lease, .. } => &**lease,
            InStore::Session(session) => &**session,
        }
    }

    /// What has to be released in the end.
    pub(crate) fn releasable(&self) -> Arc<dyn Releasable> {
        match &self.in_store {
            InStore::Lease { lease, .. } => Arc::<dyn Lease>::clone(lease),
            InStore::Session(session) => Arc::<dyn Session>::clone(session),
        }
    }

    /// When it must have ended in the store, if it is not renewed after `now`. Of a session, only the store knows.
    pub(crate) fn gone_by(&self, now: Instant) -> Instant {
        match &self.in_store {
            InStore::Lease { .. } => now.min(self.deadline()) + self.terms.ttl,
            InStore::Session(_) => Instant::FAR_FUTURE,
        }
    }
}

/// One holder's part of a [`Hold`]: from entering to leaving.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) hold: Arc<Hold>,
    pub(crate) token: FencingToken,
    phase: AtomicU8,
    /// Until when it is not released, whatever becomes of its guard: `hold_at_least`.
    held_until: AtomicU64,
}

/// The phases of a [`Turn`].
const ACTIVE: u8 = 0;
/// Not to be relied on any more, and not left either: another of the locks that are held with it is lost.
const INVALID: u8 = 1;
const OVER: u8 = 2;

impl Turn {
    pub(crate) fn first(hold: Arc<Hold>, token: FencingToken) -> Arc<Self> {
        Arc::new(Self { hold, token, phase: AtomicU8::new(ACTIVE), held_until: AtomicU64::new(0) })
    }

    /// From here on it is not released before `until`, whatever becomes of its guard.
    pub(crate) fn hold_until(&self, until: Instant) {
        self.held_until.fetch_max(until.as_nanos(), Ordering::AcqRel);
        self.hold.held_until.fetch_max(until.as_nanos(), Ordering::AcqRel);
    }

    /// Until when it is not to be released.
    pub(crate) fn held_until(&self) -> Instant {
        Instant::from_nanos(self.held_until.load(Ordering::Acquire))
    }

    /// Retains the hold without a guard while it is [held](Self::held_until). The renewals have to be told afterwards.
    pub(crate) fn retain(self: &Arc<Self>, permit: RetentionPermit) {
        // First, so that it is not ended for an end that has been moved.
        self.hold.set_turn_ends(self.held_until());
        self.hold.extra().retained = Some((Arc::clone(self), permit));
    }

    /// The next holder's turn, once this one is over; none when the grant's tokens are used up. The renewals have to be told
    /// afterwards.
    pub(crate) fn next(&self, now: Instant, max_hold: Duration) -> Option<Arc<Self>> {
        let token = self.token.successor()?;
        let hold = &self.hold;
        hold.set_turn_ends(hold.terms.turn_ends(now, max_hold, hold.deadline()));
        Some(Self::first(Arc::clone(hold), token))
    }

    /// The safe deadline as known now; renewal moves it.
    pub(crate) fn deadline(&self) -> Instant {
        self.hold.deadline().min(self.hold.turn_ends())
    }

    pub(crate) fn is_valid(&self, now: Instant) -> bool {
        !self.is_over() && self.is_covered(now)
    }

    /// Whether the lease may be relied on for this turn, whether or not it is used still.
    pub(crate) fn is_covered(&self, now: Instant) -> bool {
        now < self.hold.turn_ends() && self.hold.is_valid(now) && self.hold.is_here()
    }

    pub(crate) fn remaining(&self, now: Instant) -> Duration {
        if self.is_valid(now) { self.deadline().saturating_duration_since(now) } else { Duration::ZERO }
    }

    /// Whether its holder may not use it any more, whatever becomes of the lease.
    fn is_over(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= INVALID
    }

    /// Tells the holder to leave. Until it has, no other client gets the lock: what it does still runs, if only to its
    /// next await.
    pub(crate) fn invalidate(&self) {
        if self.phase.fetch_max(INVALID, Ordering::AcqRel) < INVALID {
            self.hold.changed.notify_waiters();
        }
    }

    /// The holder left; true the first time.
    pub(crate) fn end(&self) -> bool {
        let first = self.phase.swap(OVER, Ordering::AcqRel) != OVER;
        if first {
            self.hold.changed.notify_waiters();
        }
        first
    }

    /// Completes when the turn is not valid any more, at its safe deadline at the latest.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn lost(&self) {
        loop {
            let is_lost = || (!self.is_valid(Instant::now())).then_some(());
            tokio::select! {
                biased;
                lost = check_or_wait(&self.hold.changed, is_lost) => if lost.is_some() { return },
                // Read after the look above, which sees to it that no change of it is missed.
                () = async { clock::sleep_until(self.deadline()).await } => {}
            }
        }
    }

    /// The error that says why this turn is not valid.
    pub(crate) fn loss(&self) -> LockError {
        let phase = self.phase.load(Ordering::Acquire);
        let why = if phase == OVER {
            "lost: the section that it was held for has ended, and its hold with it"
        } else if !self.hold.is_here() {
            "lost: it is held by the process from which this one was forked"
        } else if phase == INVALID && self.is_covered(Instant::now()) {
            "lost: another of the locks that were held with it is"
        } else if Instant::now() < self.hold.turn_ends() {
            "lost: the lease was not renewed in time or the store gave it to another client; \
             check what was done since with the fencing token"
        } else if self.hold.terms.auto_renew {
            "lost: `max_hold` is reached; make the section shorter or `max_hold` longer"
        } else {
            "lost: its `ttl` is over and `auto_renew` is off"
        };
        LockError::new(LockErrorKind::Lost, why).with_key(self.hold.key())
    }
}

/// Why they cannot be relied on: the loss of one, which ended the others.
pub(crate) fn loss<'a>(held: impl Iterator<Item = &'a Arc<Turn>>) -> LockError {
    let now = Instant::now();
    let cause = held.min_by_key(|turn| (turn.is_valid(now), turn.is_covered(now)));
    cause.expect("no guard is without a lock").loss()
}

#[cfg(test)]
mod tests;
