//! The leader, which asks the store on behalf of its cohort, and the reporter of the store's answers.

use std::sync::Arc;

use crate::{
    LockError,
    backend::{LockId, Reporter, Reports},
    engine::{
        cohort::queues::{Cohorts, TimeoutCause},
        hold::Turn,
    },
    time::clock::Instant,
};

/// Reports to a cohort the answers that its leader gets from the store.
#[derive(Debug)]
pub(crate) struct CohortReporter {
    cohorts: Arc<Cohorts>,
    lock: LockId,
    id: u64,
}

impl CohortReporter {
    /// Returns this reporter as the type that a store takes.
    pub(crate) fn for_store(&self) -> Reporter {
        let Self { cohorts, lock, id } = self;
        let to: Arc<dyn Reports> = Arc::<Cohorts>::clone(cohorts);
        Reporter { to, lock: lock.clone(), attempt: *id }
    }

    /// Reports that, according to the store, another client holds the lock.
    pub(crate) fn contended(&self) {
        self.cohorts.contended(&self.lock, self.id);
    }

    /// Reports that the store failed.
    pub(crate) fn failed(&self, error: &LockError) {
        self.cohorts.failed(&self.lock, self.id, error);
    }

    /// Returns why the store has not granted the lock so far.
    pub(crate) fn timeout_cause(&self) -> TimeoutCause {
        self.cohorts.timeout_cause(&self.lock, self.id)
    }
}

/// The task that asks the store on behalf of its cohort. Dropping the leader lets the next waiter ask the store.
#[derive(Debug)]
pub(crate) struct Leader {
    reporter: CohortReporter,
    leads: bool,
}

impl Leader {
    pub(super) fn new(cohorts: &Arc<Cohorts>, lock: LockId, id: u64) -> Self {
        Self { reporter: CohortReporter { cohorts: Arc::clone(cohorts), lock, id }, leads: true }
    }

    pub(crate) fn reporter(&self) -> &CohortReporter {
        &self.reporter
    }

    /// Records that the store granted the lock. Returns whether the store had said before that another client held the
    /// lock.
    pub(crate) fn granted(mut self, turn: &Arc<Turn>, now: Instant) -> bool {
        self.leads = false;
        let CohortReporter { cohorts, lock, id } = &self.reporter;
        cohorts.granted(lock, *id, turn, now)
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if self.leads {
            let CohortReporter { cohorts, lock, id } = &self.reporter;
            cohorts.give_up_lead(lock, *id);
        }
    }
}
