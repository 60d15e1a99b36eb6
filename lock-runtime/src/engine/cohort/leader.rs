//! The task that asks the store for its cohort, and where the store reports how that goes.

use std::sync::Arc;

use crate::{
    LockError,
    backend::{Reporter, Reports},
    engine::{
        cohort::queues::{Cohorts, TimeoutCause},
        hold::Turn,
    },
    time::clock::Instant,
};

/// Reports to the cohort of a lock what the store says to its leader.
#[derive(Debug)]
pub(crate) struct CohortReporter {
    cohorts: Arc<Cohorts>,
    name: Arc<str>,
    id: u64,
}

impl CohortReporter {
    /// The same for the store.
    pub(crate) fn for_store(&self) -> Reporter {
        let Self { cohorts, name, id } = self;
        let to: Arc<dyn Reports> = Arc::<Cohorts>::clone(cohorts);
        Reporter { to, lock: Arc::clone(name), attempt: *id }
    }

    /// The store said that another client holds the lock.
    pub(crate) fn contended(&self) {
        self.cohorts.contended(&self.name, self.id);
    }

    /// The store failed, and will be asked again.
    pub(crate) fn failed(&self, error: &LockError) {
        self.cohorts.failed(&self.name, self.id, error);
    }

    /// Why the store has not granted the lock until now.
    pub(crate) fn timeout_cause(&self) -> TimeoutCause {
        self.cohorts.timeout_cause(&self.name, self.id)
    }
}

/// The task that asks the store for its cohort; dropped, it lets the next one ask.
#[derive(Debug)]
pub(crate) struct Leader {
    reporter: CohortReporter,
    leads: bool,
}

impl Leader {
    pub(super) fn new(cohorts: &Arc<Cohorts>, name: Arc<str>, id: u64) -> Self {
        Self { reporter: CohortReporter { cohorts: Arc::clone(cohorts), name, id }, leads: true }
    }

    pub(crate) fn reporter(&self) -> &CohortReporter {
        &self.reporter
    }

    /// The store granted the lock.
    pub(crate) fn granted(mut self, turn: &Arc<Turn>, now: Instant) {
        self.leads = false;
        let CohortReporter { cohorts, name, id } = &self.reporter;
        cohorts.granted(name, *id, turn, now);
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if self.leads {
            let CohortReporter { cohorts, name, id } = &self.reporter;
            cohorts.give_up_lead(name, *id);
        }
    }
}
