//! What all handles to one store have in common.

pub(crate) mod cohort;
pub(crate) mod hold;
pub(crate) mod in_flight;
pub(crate) mod limits;
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
    background,
    engine::{
        cohort::{Cohorts, Leaving},
        hold::{Hold, Turn},
        in_flight::InFlight,
        releaser::Releaser,
        renewal::Renewals,
        unpolled::Waiting,
    },
    process::Process,
    sync::check_or_wait,
    time::{
        clock::Instant,
        deadline::{margin, min_validity},
    },
};

/// One store, and everything that stands above it.
pub(crate) struct Engine {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) cohorts: Arc<Cohorts>,
    pub(crate) renewals: Arc<Renewals>,
    pub(crate) releaser: Arc<Releaser>,
    pub(crate) limits: Limits,
    /// Acquisitions that have begun and not ended; what they leave behind, the releaser has by then.
    pub(crate) asking: Arc<InFlight>,
    /// Those of them that wait.
    pub(crate) waiting: Arc<Waiting>,
    held: AtomicUsize,
    /// None where no other process sees the locks.
    process: Option<Process>,
    shut_down: AtomicBool,
    shutting_down: Notify,
}

impl Engine {
    pub(crate) fn new(backend: Arc<dyn Backend>, limits: Limits) -> Arc<Self> {
        let cohorts = Cohorts::new(limits);
        Arc::new(Self {
            process: backend.capabilities().shared_between_processes.then(Process::this),
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

    /// Whether the locks of both are the same locks.
    pub(crate) fn is_store_of(&self, other: &Self) -> bool {
        // Managers that differ in their limits share the backend only.
        Arc::ptr_eq(&self.backend, &other.backend) || {
            let names = other.backend.names();
            self.backend.names().iter().any(|name| names.contains(name))
        }
    }

    pub(crate) fn cleanup(&self) -> Cleanup {
        Cleanup(Arc::<Releaser>::clone(&self.releaser))
    }

    /// Counts one held lock, until the answer is dropped.
    pub(crate) fn permit(self: &Arc<Self>) -> Result<Permit, LockError> {
        self.check_open()?;
        let permit = Permit { engine: Arc::clone(self), counted: true };
        if self.held.fetch_add(1, Ordering::Relaxed) >= self.limits.held {
            let most = self.limits.held;
            let message = format!("{most} locks are held or asked for already, the limit of this manager");
            return Err(LockError::new(LockErrorKind::Overloaded, message));
        }
        Ok(permit)
    }

    pub(crate) fn check_open(&self) -> Result<(), LockError> {
        if self.shut_down.load(Ordering::SeqCst) { Err(shut_down()) } else { Ok(()) }
    }

    /// The process that a hold of this store belongs to.
    pub(crate) fn process(&self) -> Option<Process> {
        self.process
    }

    /// Fails when the manager is shut down.
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

    /// Refuses new and waiting acquisitions from here on, and waits until nothing is left to clean up.
    pub(crate) async fn shut_down(&self) {
        self.shut_down.store(true, Ordering::SeqCst);
        // What is left is the parent's: nothing here ends it, and a mutex may have been locked when the process was forked.
        if self.process.is_some_and(|process| !process.is_this()) {
            return;
        }
        self.shutting_down.notify_waiters();
        // Those that hear of nothing but the answer for which they wait.
        self.waiting.close();
        // Each of them ends when it is polled next, or is given up when it is not polled.
        self.asking.drained().await;
        self.releaser.drained().await;
    }

    /// With less than this left, a hold of this `ttl` is given back instead of being handed out.
    pub(crate) fn least_validity(&self, ttl: Duration) -> Duration {
        // A session may be shorter; what is left of it is all that a hold ever has.
        min_validity(ttl.min(self.backend.capabilities().session_timeout.unwrap_or(ttl)))
    }

    /// Whether a turn that was passed on is worth it; else it is given back.
    pub(crate) fn is_worth_it(self: &Arc<Self>, turn: &Arc<Turn>) -> bool {
        let (now, hold) = (Instant::now(), &turn.hold);
        let worth_it = hold.remaining(now) >= self.least_validity(hold.terms.ttl);
        if !worth_it {
            self.leave_in_background(turn, now);
        }
        worth_it
    }

    /// The holder of `turn` left without waiting for the store.
    pub(crate) fn leave_in_background(&self, turn: &Arc<Turn>, now: Instant) {
        let leaving = self.leave(turn, now);
        self.release_in_background(leaving, turn, now);
    }

    pub(crate) fn release_in_background(&self, leaving: Leaving, turn: &Turn, now: Instant) {
        if let Leaving::Last = leaving {
            let hold = &turn.hold;
            self.releaser.release(hold.releasable(), hold.gone_by(now));
        }
    }

    /// Ends a turn: the lease goes to the next waiter of this process, or has to be released by the caller.
    pub(crate) fn leave(&self, turn: &Arc<Turn>, now: Instant) -> Leaving {
        let valid = turn.is_valid(now);
        // Over before the next one is told to enter: views of this hold must not be valid beside its.
        if !turn.end() {
            return Leaving::Passed;
        }
        self.pass(turn, valid, now)
    }

    /// Passes on the lease of a turn that is over, if it was `valid` and a task waits.
    fn pass(&self, turn: &Arc<Turn>, valid: bool, now: Instant) -> Leaving {
        let leaving = self.cohorts.leave(turn, valid, now);
        match leaving {
            Leaving::Passed => self.renewals.turn_moved(&turn.hold),
            Leaving::Last => self.renewals.remove(&turn.hold),
        }
        leaving
    }
}

impl cohort::Above for Engine {
    fn revoke_turn(&self, turn: &Arc<Turn>) {
        self.leave_in_background(turn, Instant::now());
    }
}

impl renewal::Above for Engine {
    fn renewals(&self) -> &Arc<Renewals> {
        &self.renewals
    }

    fn renewal(&self) -> Option<&dyn Renew> {
        self.backend.renewal()
    }

    fn end_retention(&self, hold: &Arc<Hold>) -> bool {
        let now = Instant::now();
        let Some((turn, _permit)) = hold.end_retention(now) else { return false };
        tracing::debug!(key = %hold.key(), "released: it was held for as long as was asked");
        let leaving = self.pass(&turn, hold.is_valid(now), now);
        self.release_in_background(leaving, &turn, now);
        true
    }

    fn lost(&self, hold: &Arc<Hold>) {
        self.cohorts.dissolve(hold);
        if hold.session().is_some() {
            // It would last as long as the session, which may outlive its deadline. Not at once, unless its guard does so:
            // the holder has only been told to stop.
            let now = Instant::now();
            let stopped = now + margin(hold.terms.ttl);
            self.releaser.release_after(hold.held_until().max(stopped), hold.releasable(), hold.gone_by(now));
        }
    }
}

/// One of the locks that may be held at the same time. With it, the engine lives.
#[derive(Debug)]
pub(crate) struct Permit {
    engine: Arc<Engine>,
    counted: bool,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.counted {
            self.engine.held.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Permit {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// For the same lock once more, which is not another one.
    pub(crate) fn again(&self) -> Self {
        Self { engine: Arc::clone(&self.engine), counted: false }
    }

    /// The guard that this counts is gone. Where its hold is to last for longer it is kept, and counted; else left.
    pub(crate) fn leave_in_time(&mut self, turn: &Arc<Turn>, now: Instant) -> Leaving {
        if now >= turn.held_until() {
            return self.engine.leave(turn, now);
        }
        let (covered, hold) = (turn.is_covered(now), &turn.hold);
        if !turn.end() {
            return Leaving::Passed;
        }
        if covered {
            let rest = self.again();
            turn.retain(Box::new(std::mem::replace(self, rest)));
            self.engine.renewals.turn_moved(hold);
            // Lost in between, it is not looked at any more.
            if hold.is_closed() {
                hold.end_retention(now);
            }
        } else {
            // A release would free what the store may still keep until then.
            tracing::debug!(key = %hold.key(), "lost before `hold_at_least` was over; its lease is left to the store");
            self.engine.cohorts.leave(turn, false, now);
            self.engine.renewals.remove(hold);
            if hold.session().is_some() {
                // Of itself it would end with the session only.
                self.engine.releaser.release_after(turn.held_until(), hold.releasable(), hold.gone_by(now));
            }
        }
        Leaving::Passed
    }
}

/// Without the locks: their names belong to others.
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
    LockError::new(LockErrorKind::ShutDown, "the manager was shut down; no lock is acquired any more")
}
