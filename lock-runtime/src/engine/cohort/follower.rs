//! A task that waits behind the leader of its cohort.

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::oneshot;

use crate::{
    backend::LockId,
    engine::{
        cohort::{
            leader::Leader,
            queues::{Call, Cohorts, TimeoutCause},
        },
        hold::Turn,
    },
    time::clock::{self, Instant},
};

/// How long an acquisition whose wait is over still waits for the store's answer, which is worth more than an error.
pub(super) const LATE_ANSWER: Duration = Duration::from_millis(500);

/// Returns the deadline for the answer to a request sent now, if the caller's wait ends at `end`.
///
/// Several locks share one wait, so a lock may be asked for after the end of the wait.
pub(crate) fn answer_deadline(end: Instant) -> Instant {
    end.max(Instant::now()) + LATE_ANSWER
}

/// The engine, as far as the queues call it: it takes back turns that waiters no longer want.
pub(crate) trait GrantReceiver: fmt::Debug + Send + Sync {
    /// Ends a turn that was handed over to a waiter that is gone.
    fn take_back(&self, turn: &Arc<Turn>);
}

/// A task that waits in the queue of this process. Dropping the follower leaves the queue.
#[derive(Debug)]
pub(crate) struct Follower {
    cohorts: Arc<Cohorts>,
    receiver: Arc<dyn GrantReceiver>,
    lock: LockId,
    id: u64,
    call: oneshot::Receiver<Call>,
    /// Whether the task is out of the queue: nothing is then left to undo.
    done: bool,
}

/// The end of a wait in the queue.
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
        receiver: Arc<dyn GrantReceiver>,
        lock: LockId,
        id: u64,
        call: oneshot::Receiver<Call>,
    ) -> Self {
        Self { cohorts: Arc::clone(cohorts), receiver, lock, id, call, done: false }
    }

    /// Waits until called, at most until `end`, or a little longer if the store has not answered by then.
    ///
    /// # Cancel safety
    /// Dropping this future leaves the queue; a call that came at the same moment goes to the next waiter.
    pub(crate) async fn wait(mut self, end: Instant) -> Waited {
        let mut call = tokio::select! {
            biased;
            call = &mut self.call => call.ok(),
            () = clock::sleep_until(end) => None,
        };
        if call.is_none() {
            call = self.wait_for_answer(answer_deadline(end)).await;
        }
        match call {
            Some(call) => self.accept(call),
            None => self.time_out(),
        }
    }

    /// Waits until the store has answered or this task is called, at most until `end`.
    async fn wait_for_answer(&mut self, end: Instant) -> Option<Call> {
        loop {
            tokio::select! {
                biased;
                call = &mut self.call => return call.ok(),
                answered = self.cohorts.check_answered(&self.lock) => if answered.is_some() { return None },
                () = clock::sleep_until(end) => return None,
            }
        }
    }

    fn accept(&mut self, call: Call) -> Waited {
        self.done = true;
        match call {
            Call::Enter(turn) => Waited::Entered(turn),
            Call::Lead { pause } => Waited::Lead { leader: self.lead(), pause },
        }
    }

    fn lead(&self) -> Leader {
        Leader::new(&self.cohorts, self.lock.clone(), self.id)
    }

    pub(super) fn time_out(&mut self) -> Waited {
        let cause = self.cohorts.withdraw(&self.lock, self.id);
        self.done = true;
        // Out of the queue, this task is no longer called, but the call may have come just before.
        match self.call.try_recv() {
            Ok(call) => self.accept(call),
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
        self.call.close();
        match self.call.try_recv() {
            Ok(Call::Enter(turn)) => self.receiver.take_back(&turn),
            Ok(Call::Lead { .. }) => drop(self.lead()),
            Err(_) => {}
        }
    }
}
