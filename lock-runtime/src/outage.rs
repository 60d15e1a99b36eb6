//! What the log says of a store that goes away and comes back.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use crate::clock::Instant;

/// One outage of a store, however many connections and callers notice it: a warning at its beginning, a line of
/// information at its end.
#[derive(Debug)]
pub(crate) struct Outage {
    /// With its address.
    store: String,
    since: Mutex<Option<Instant>>,
}

impl Outage {
    /// Of a store that has not failed so far.
    pub(crate) fn of(store: String) -> Self {
        Self { store, since: Mutex::new(None) }
    }

    /// The store cannot be reached.
    pub(crate) fn begins(&self, error: &dyn fmt::Display) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.is_none() {
            *since = Some(Instant::now());
            drop(since);
            tracing::warn!(%error, "{} cannot be reached: no lock is granted until it can", self.store);
        }
    }

    /// The store was reached.
    pub(crate) fn ends(&self) {
        let since = self.since.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(since) = since {
            let outage = Instant::now().saturating_duration_since(since);
            tracing::info!(?outage, "{} is reached again", self.store);
        }
    }
}
