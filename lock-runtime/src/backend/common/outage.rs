//! Log lines about a store that becomes unreachable and returns.

use std::sync::Mutex;

use crate::{LockError, sync::lock, time::clock::Instant};

/// Logs each outage of a store once, however many connections and callers notice it: a warning when it begins, or an
/// error if the store refuses us, and an info line when it ends.
#[derive(Debug)]
pub(crate) struct Outage {
    /// The name of the store, with its address.
    store: String,
    /// The consequence of an outage, for the log.
    consequence: &'static str,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// Reached since this moment, or not tried yet.
    Reached(Instant),
    Away {
        since: Instant,
        /// Whether the refusal is in the log already.
        refused: bool,
    },
}

impl Outage {
    /// Creates the state of a store that has not failed so far.
    pub(crate) fn of(store: String, consequence: &'static str) -> Self {
        Self { store, consequence, state: Mutex::new(State::Reached(Instant::from_nanos(0))) }
    }

    /// Records that the store cannot be reached, as shown by an attempt or a connection that began at `began`. An
    /// attempt or a connection that began before the last outage ended is late evidence of that outage, and is ignored.
    pub(crate) fn begins(&self, began: Instant, error: &LockError) {
        let refused = !error.is_retryable();
        let mut state = lock(&self.state);
        match &mut *state {
            State::Reached(since) if *since > began => return,
            State::Reached(_) => *state = State::Away { since: Instant::now(), refused },
            State::Away { refused: told, .. } if refused && !*told => *told = true,
            State::Away { .. } => return,
        }
        drop(state);
        let Self { store, consequence, .. } = self;
        if refused {
            tracing::error!(%error, "{store} refuses us: {consequence} until the configuration is fixed");
        } else {
            tracing::warn!(%error, "{store} cannot be reached: {consequence} until it can");
        }
    }

    /// Records that the store was reached.
    pub(crate) fn ends(&self) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        if let State::Away { since, .. } = *state {
            *state = State::Reached(now);
            drop(state);
            let outage = now.saturating_duration_since(since);
            tracing::info!(?outage, "{} can be reached again", self.store);
        }
    }
}
