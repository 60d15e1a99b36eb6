//! The engine: everything between the managers of one store and the store.

pub(crate) mod cohort;
pub(crate) mod hold;
pub(crate) mod in_flight;
pub(crate) mod limits;
pub(crate) mod loss;
pub(crate) mod releaser;
pub(crate) mod renewal;
pub(crate) mod request;
mod schedule;
pub(crate) mod unpolled;

pub use self::limits::Limits;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    LockError, LockErrorKind,
    backend::{Backend, Cleanup, Renew},
    background, caller,
    engine::{
        cohort::{Cohorts, GrantReceiver, Leaving},
        hold::{Hold, Turn},
        in_flight::InFlight,
        loss::Ends,
        releaser::Releaser,
        renewal::{LossHandler, Renewals},
        unpolled::Waiting,
    },
    process::Process,
    sync::check_or_wait,
    time::{
        clock::Instant,
        deadline::{margin, min_validity},
    },
};

/// One store with its queues, renewals and releases.
pub(crate) struct Engine {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) cohorts: Arc<Cohorts>,
    pub(crate) renewals: Arc<Renewals>,
    pub(crate) releaser: Arc<Releaser>,
    pub(crate) limits: Limits,
    /// Acquisitions in progress. One counts until the releaser has everything that it leaves behind.
    pub(crate) asking: Arc<InFlight>,
    /// The acquisitions that wait.
    pub(crate) waiting: Arc<Waiting>,
    held: AtomicUsize,
    /// `None` if no other process sees the locks.
    process: Option<Process>,
    shut_down: AtomicBool,
    shutting_down: Notify,
}

impl Engine {
    pub(crate) fn new(backend: Arc<dyn Backend>, limits: Limits) -> Arc<Self> {
        let cohorts = Cohorts::new(limits);
        Arc::new(Self {
            process: backend.capabilities().is_shared_between_processes().then(Process::this),
            backend,
            waiting: Waiting::new(&cohorts),
            cohorts,
            renewals: Arc::default(),
            releaser: Releaser::new(background::handle()),
            limits,
            asking: Arc::default(),
            held: AtomicUsize::new(0),
            shut_down: AtomicBool::new(false),
            shutting_down: Notify::new(),
        })
    }

    /// Returns whether the locks of both engines are the same locks.
    pub(crate) fn is_store_of(&self, other: &Self) -> bool {
        // Managers that differ in their limits share only the backend.
        Arc::ptr_eq(&self.backend, &other.backend) || {
            let names = other.backend.names();
            self.backend.names().iter().any(|name| names.contains(name))
        }
    }

    pub(crate) fn cleanup(&self) -> Cleanup {
        Cleanup(Arc::<Releaser>::clone(&self.releaser))
    }

    /// Counts one acquisition, and one held lock until the permit is dropped.
    pub(crate) fn permit(self: &Arc<Self>) -> Result<Permit, LockError> {
        // Counted before the check that the manager is open.
        self.asking.begin();
        let mut permit = Permit { engine: Arc::clone(self), is_asking: true, counted: false };
        self.check_open()?;
        // A lock that cannot be renewed or released is not acquired.
        background::check()?;
        self.check_caller()?;
        permit.counted = true;
        if self.held.fetch_add(1, Ordering::Relaxed) >= self.limits.held {
            let most = self.limits.held;
            let message = format!("{most} locks are already held or requested, the limit of this manager");
            return Err(LockError::new(LockErrorKind::Overloaded, message));
        }
        Ok(permit)
    }

    pub(crate) fn check_open(&self) -> Result<(), LockError> {
        if self.shut_down.load(Ordering::SeqCst) { Err(shut_down()) } else { Ok(()) }
    }

    /// Fails where a store with a server cannot be asked.
    pub(crate) fn check_caller(&self) -> Result<(), LockError> {
        // A store within the process needs nothing of the caller's runtime.
        if self.process.is_some() { caller::check() } else { Ok(()) }
    }

    /// The process that a hold of this store belongs to.
    pub(crate) fn process(&self) -> Option<Process> {
        self.process
    }

    /// Completes with an error when the manager is shut down.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn closed(&self) -> LockError {
        loop {
            if let Some(error) = check_or_wait(&self.shutting_down, || self.check_open().err()).await {
                return error;
            }
        }
    }

    /// Refuses new and waiting acquisitions from now on, and waits until nothing is left to clean up.
    pub(crate) async fn shut_down(&self) {
        self.shut_down.store(true, Ordering::SeqCst);
        // In a forked child the rest is the parent's: nothing here would end it, and a mutex may have been locked when
        // the process was forked.
        if self.process.is_some_and(|process| !process.is_this()) {
            return;
        }
        self.shutting_down.notify_waiters();
        // Also wakes the acquisitions that wait for nothing but their pending answer.
        self.waiting.close();
        // Each acquisition ends at its next poll, or is given up if it is not polled.
        self.asking.drained().await;
        self.releaser.drained().await;
    }

    /// Returns the least validity with which a hold of this `ttl` is handed out; with less it is given back.
    pub(crate) fn least_validity(&self, ttl: Duration) -> Duration {
        min_validity(self.longest_validity(ttl))
    }

    /// Returns the most that a hold of this `ttl` can have left: a session may be shorter.
    fn longest_validity(&self, ttl: Duration) -> Duration {
        ttl.min(self.backend.capabilities().session_timeout().unwrap_or(ttl))
    }

    /// Returns whether a turn that was handed over has enough validity left; if not, gives it back.
    pub(crate) fn is_worth_it(self: &Arc<Self>, turn: &Arc<Turn>) -> bool {
        let (now, hold) = (Instant::now(), &turn.hold);
        let worth_it = hold.remaining(now) >= self.least_validity(hold.terms.ttl);
        if !worth_it {
            self.leave_in_background(turn, now);
        }
        worth_it
    }

    /// Ends `turn` for a holder that does not wait for the store.
    pub(crate) fn leave_in_background(&self, turn: &Arc<Turn>, now: Instant) {
        let leaving = self.leave(turn, now);
        self.release_in_background(leaving, turn, Ends::Remains, now);
    }

    /// Releases the lease of the last turn, at once if the store can do so without waiting.
    pub(crate) fn release_in_background(&self, leaving: Leaving, turn: &Turn, ends: Ends, now: Instant) {
        let (Leaving::Last, hold) = (leaving, &turn.hold) else { return };
        match hold.in_store().release_now() {
            Some(answer) => ends.log(hold.key(), answer),
            None => self.releaser.release(hold.releasable(), ends, hold.gone_by(now)),
        }
    }

    /// Ends a turn: the lease goes to the next waiter of this process, or has to be released by the caller.
    pub(crate) fn leave(&self, turn: &Arc<Turn>, now: Instant) -> Leaving {
        let valid = turn.is_valid(now);
        // Ended before the next holder is notified: no view of this turn may be valid during the next one.
        if !turn.end() {
            return Leaving::Passed;
        }
        self.pass(turn, valid, now)
    }

    /// Hands over the lease of a turn that is over, if it was `valid` and a task waits.
    fn pass(&self, turn: &Arc<Turn>, valid: bool, now: Instant) -> Leaving {
        let leaving = self.cohorts.leave(turn, valid, now);
        match leaving {
            Leaving::Passed => self.renewals.turn_moved(&turn.hold),
            Leaving::Last => self.renewals.remove(&turn.hold),
        }
        leaving
    }
}

impl GrantReceiver for Engine {
    fn take_back(&self, turn: &Arc<Turn>) {
        self.leave_in_background(turn, Instant::now());
    }
}

impl LossHandler for Engine {
    fn renewals(&self) -> &Arc<Renewals> {
        &self.renewals
    }

    fn renewal(&self) -> Option<&dyn Renew> {
        self.backend.renewal()
    }

    fn end_retention(&self, hold: &Arc<Hold>) -> bool {
        let now = Instant::now();
        let Some((turn, _permit)) = hold.end_retention(now) else { return false };
        tracing::debug!(key = %hold.key(), "released: `hold_at_least` is over");
        let leaving = self.pass(&turn, hold.is_valid(now), now);
        self.release_in_background(leaving, &turn, Ends::Hold, now);
        true
    }

    fn lost(&self, hold: &Arc<Hold>) {
        self.cohorts.dissolve(hold);
        if hold.session().is_some() {
            // Otherwise it would last as long as the session, which may outlive its deadline. Unless its guard does so
            // sooner, it is released only after a margin: the holder has just been notified to stop.
            let now = Instant::now();
            // A session that has ended keeps it no longer than its own margin.
            let (ttl, has_ended) = (hold.terms.ttl, now >= hold.deadline());
            let longest = if has_ended { self.longest_validity(ttl) } else { ttl };
            let stopped = now + margin(longest);
            let at = hold.held_until().max(stopped);
            self.releaser.release_after(at, hold.releasable(), hold.gone_by(now));
        }
    }
}

/// One of the locks that may be held at the same time, and the acquisition of it. Keeps the engine alive.
#[derive(Debug)]
pub(crate) struct Permit {
    engine: Arc<Engine>,
    /// Counted as an acquisition in progress.
    is_asking: bool,
    /// Counted as a held lock.
    counted: bool,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.entered();
        if self.counted {
            self.engine.held.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Permit {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Ends the acquisition.
    pub(crate) fn entered(&mut self) {
        if std::mem::replace(&mut self.is_asking, false) {
            self.engine.asking.end();
        }
    }

    /// Returns a permit for the same lock, which is not counted twice.
    pub(crate) fn again(&self) -> Self {
        Self { engine: Arc::clone(&self.engine), is_asking: false, counted: false }
    }

    /// Ends the turn of a dropped guard, or retains it, still counted, if it is to be held for longer.
    pub(crate) fn leave_in_time(&mut self, turn: &Arc<Turn>, now: Instant) -> Leaving {
        let (covered, hold) = (turn.is_covered(now), &turn.hold);
        // From here on, the renewals no longer watch it.
        if !covered && hold.is_first_report() {
            hold.cause(now).log(hold.key());
        }
        if now >= turn.held_until() {
            return self.engine.leave(turn, now);
        }
        if !turn.end() {
            return Leaving::Passed;
        }
        if covered {
            let rest = self.again();
            turn.retain(Box::new(std::mem::replace(self, rest)));
            self.engine.renewals.turn_moved(hold);
            // If it was lost in between, the schedule no longer has it and would not end its retention.
            if hold.is_closed() {
                hold.end_retention(now);
            }
        } else {
            // A release would free a lock that the store may still keep until then.
            tracing::debug!(key = %hold.key(), "lost before `hold_at_least` was over; its lease is left to the store");
            self.engine.cohorts.leave(turn, false, now);
            self.engine.renewals.remove(hold);
            if hold.session().is_some() {
                // Without a release it would end only with the session.
                self.engine.releaser.release_after(turn.held_until(), hold.releasable(), hold.gone_by(now));
            }
        }
        Leaving::Passed
    }
}

/// Omits the locks: their names belong to other callers.
impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("backend", &self.backend)
            .field("limits", &self.limits)
            .field("held", &self.held)
            .field("shut_down", &self.shut_down)
            .finish_non_exhaustive()
    }
}

fn shut_down() -> LockError {
    LockError::new(LockErrorKind::ShutDown, "the manager was shut down and acquires no more locks")
}
