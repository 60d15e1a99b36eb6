//! A task that waits behind the leader of its cohort.

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::oneshot;

use crate::{
    backend::LockId,
    engine::{
        cohort::{
            leader::Leader,
            queues::{Cohorts, Handover, TimeoutCause},
        },
        hold::Turn,
    },
    time::clock::{self, Instant},
};

/// How long an acquisition whose wait is over still waits for an answer of the store: it is worth more than an error.
pub(super) const LATE_ANSWER: Duration = Duration::from_millis(500);

/// Returns the deadline for the answer to a request sent now, if the caller's wait ends at `end`.
///
/// Several locks share one wait, so one of them may be asked for after its end.
pub(crate) fn answer_deadline(end: Instant) -> Instant {
    end.max(Instant::now()) + LATE_ANSWER
}

/// The part of the engine that the queues call.
pub(crate) trait Above: fmt::Debug + Send + Sync {
    /// Ends a turn that was handed over to a waiter that is gone.
    fn revoke_turn(&self, turn: &Arc<Turn>);
}

/// A task that waits in the queue of this process. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Follower {
    cohorts: Arc<Cohorts>,
    above: Arc<dyn Above>,
    lock: LockId,
    id: u64,
    handover: oneshot::Receiver<Handover>,
    /// Out of the queue: nothing is left to undo.
    done: bool,
}

/// How waiting in the queue ended.
#[derive(Debug)]
pub(crate) enum Waited {
    /// The turn was handed over to this task.
    Entered(Arc<Turn>),
    /// This task has to ask the store, after a pause.
    Lead { leader: Leader, pause: Duration },
    /// The wait is over.
    TimedOut(TimeoutCause),
}

impl Follower {
    pub(super) fn new(
        cohorts: &Arc<Cohorts>,
        above: Arc<dyn Above>,
        lock: LockId,
        id: u64,
        handover: oneshot::Receiver<Handover>,
    ) -> Self {
        Self { cohorts: Arc::clone(cohorts), above, lock, id, handover, done: false }
    }

    /// Waits until called, at most until `end`, or a little longer if the store has not answered by then.
    ///
    /// # Cancel safety
    /// Dropping it leaves the queue; a call that came at the same moment goes to the next waiter.
    pub(crate) async fn wait(mut self, end: Instant) -> Waited {
        let mut handover = tokio::select! {
            biased;
            handover = &mut self.handover => handover.ok(),
            () = clock::sleep_until(end) => None,
        };
        if handover.is_none() {
            handover = self.wait_for_answer(answer_deadline(end)).await;
        }
        match handover {
            Some(handover) => self.accept(handover),
            None => self.time_out(),
        }
    }

    /// Waits until the store has answered or this task is called, at most until `end`.
    async fn wait_for_answer(&mut self, end: Instant) -> Option<Handover> {
        loop {
            tokio::select! {
                biased;
                handover = &mut self.handover => return handover.ok(),
                answered = self.cohorts.check_answered(&self.lock) => if answered.is_some() { return None },
                () = clock::sleep_until(end) => return None,
            }
        }
    }

    fn accept(&mut self, handover: Handover) -> Waited {
        self.done = true;
        match handover {
            Handover::Enter(turn) => Waited::Entered(turn),
            Handover::Lead { pause } => Waited::Lead { leader: self.lead(), pause },
        }
    }

    fn lead(&self) -> Leader {
        Leader::new(&self.cohorts, self.lock.clone(), self.id)
    }

    pub(super) fn time_out(&mut self) -> Waited {
        let cause = self.cohorts.withdraw(&self.lock, self.id);
        self.done = true;
        // Once out of the queue it is no longer called, but it may have been called just before.
        match self.handover.try_recv() {
            Ok(handover) => self.accept(handover),
            Err(_) => Waited::TimedOut(cause),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.cohorts.waits_no_longer();
        if self.done {
            return;
        }
        self.cohorts.withdraw(&self.lock, self.id);
        self.handover.close();
        match self.handover.try_recv() {
            Ok(Handover::Enter(turn)) => self.above.revoke_turn(&turn),
            Ok(Handover::Lead { .. }) => drop(self.lead()),
            Err(_) => {}
        }
    }
}
