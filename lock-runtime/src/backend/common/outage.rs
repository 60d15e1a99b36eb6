//! Log lines about a store that becomes unreachable and returns.

use std::sync::Mutex;

use crate::{LockError, metrics, sync::lock, time::clock::Instant};

/// Logs each outage of a store once, however many connections and callers notice the outage.
///
/// The beginning of an outage is logged as a warning, and its end as an info line. If the server refuses us during an
/// outage, the first refusal is logged as an error. This error replaces the warning if the outage begins with the
/// refusal.
#[derive(Debug)]
pub(crate) struct Outage {
    /// The name of the kind of store, for the metrics.
    store: &'static str,
    /// The product that the server runs, such as `Redis`.
    product: &'static str,
    address: String,
    /// The consequence of an outage, for the log.
    consequence: &'static str,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// The last outage ended at this moment; zero before the first outage.
    Reached(Instant),
    Away {
        since: Instant,
        /// Whether a refusal was logged during this outage.
        refused: bool,
    },
}

impl Outage {
    /// Creates the state of a store that has not failed so far.
    pub(crate) fn of(
        store: &'static str,
        product: &'static str,
        address: String,
        consequence: &'static str,
    ) -> Self {
        Self {
            store,
            product,
            address,
            consequence,
            state: Mutex::new(State::Reached(Instant::from_nanos(0))),
        }
    }

    /// Records that the store cannot be reached, as shown by the failure of an attempt or a connection that began at
    /// `began`.
    ///
    /// A failure is ignored if its attempt or connection began before the last outage ended: such a failure is late
    /// evidence of that outage.
    pub(crate) fn begins(&self, began: Instant, error: &LockError) {
        let refused = !error.is_retryable();
        let mut state = lock(&self.state);
        match &mut *state {
            State::Reached(since) if *since > began => return,
            State::Reached(_) => *state = State::Away { since: Instant::now(), refused },
            State::Away { refused: told, .. } if refused && !*told => *told = true,
            State::Away { .. } => return,
        }
        // Under the mutex, so that the last change is the one that is recorded last.
        metrics::connection(self.store, &self.address, false);
        drop(state);
        let Self { product, address, consequence, .. } = self;
        if refused {
            tracing::error!(%error, "{product} at {address} refuses us: {consequence} until the configuration is fixed");
        } else {
            tracing::warn!(%error, "{product} at {address} cannot be reached: {consequence} until it can");
        }
    }

    /// Records that the store was reached.
    pub(crate) fn ends(&self) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        metrics::connection(self.store, &self.address, true);
        if let State::Away { since, .. } = *state {
            *state = State::Reached(now);
            drop(state);
            let outage = now.saturating_duration_since(since);
            tracing::info!(?outage, "{} at {} can be reached again", self.product, self.address);
        }
    }
}
