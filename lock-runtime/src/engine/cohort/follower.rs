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

/// How much longer than the caller's time limit an acquisition waits for the store's answer. An answer says more to the
/// caller than a timeout.
pub(super) const LATE_ANSWER: Duration = Duration::from_millis(500);

/// Returns the deadline for the answer to a request sent now, if the caller's time limit ends at `end`.
///
/// The request may be sent after `end`, for two reasons. Several locks that are acquired together share one time limit,
/// so the last of these locks may be requested late. And the [`Call`] that lets a waiter ask the store may come after
/// `end`.
pub(crate) fn answer_deadline(end: Instant) -> Instant {
    end.max(Instant::now()) + LATE_ANSWER
}

/// The part of the engine that the queues call: it takes back turns whose waiters are gone.
pub(crate) trait GrantReceiver: fmt::Debug + Send + Sync {
    /// Ends a turn that was handed over to a waiter that no longer exists.
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
    /// Whether the task has left the queue already. Dropping the follower then only lowers the count of waiters.
    done: bool,
}

/// How a wait in the queue ended.
#[derive(Debug)]
pub(crate) enum Waited {
    /// The turn was handed over to this task.
    Entered(Arc<Turn>),
    /// This task has to ask the store, after a pause.
    Lead { leader: Leader, pause: Duration },
    /// The caller's time limit has passed, and the task has left the queue.
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

    /// Waits for a [`Call`], which takes this task out of the queue, at most until `end`. If the store has not answered
    /// about the lock by then, waits for the store's answer or a call, for up to [`LATE_ANSWER`] more.
    ///
    /// # Cancel safety
    /// Dropping this future leaves the queue. If a call was sent to this task just before, the next waiter gets a call
    /// instead.
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

    /// Waits until the store has answered or a call comes, at most until `end`.
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
        // No call comes after the task has left the queue, but a call may have come just before.
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
