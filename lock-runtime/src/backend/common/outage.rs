//! What the log says of a store that goes away and comes back.

use std::sync::Mutex;

use crate::{LockError, sync::lock, time::clock::Instant};

/// One outage of a store, however many connections and callers notice it: a warning at its beginning, or an
/// error where the store refuses us, and a line of information at its end.
#[derive(Debug)]
pub(crate) struct Outage {
    /// With its address.
    store: String,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// Since this moment, or from the start.
    Reached(Instant),
    Away {
        since: Instant,
        /// It was said that it refuses us.
        refused: bool,
    },
}

impl Outage {
    /// Of a store that has not failed so far.
    pub(crate) fn of(store: String) -> Self {
        Self { store, state: Mutex::new(State::Reached(Instant::from_nanos(0))) }
    }

    /// The store cannot be reached, as is seen by an attempt or a connection that began at `began`. One from before the end
    /// of an outage is a late witness of that, and nothing new.
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
        if refused {
            tracing::error!(%error, "{} refuses us: no lock is granted until a person sets it right", self.store);
        } else {
            tracing::warn!(%error, "{} cannot be reached: no lock is granted until it can", self.store);
        }
    }

    /// The store was reached.
    pub(crate) fn ends(&self) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        if let State::Away { since, .. } = *state {
            *state = State::Reached(now);
            drop(state);
            let outage = now.saturating_duration_since(since);
            tracing::info!(?outage, "{} is reached again", self.store);
        }
    }
}
