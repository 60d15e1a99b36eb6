//! Whether a server can be reached: the log lines about its outages, and its status.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use crate::{LockError, backend::ServerStatus, metrics, sync::lock, time::clock::Instant};

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
    /// When the server was reached first since the last failure, in nanoseconds; 0 if it was not reached since.
    reached: AtomicU64,
    /// When the last answer came; 0 if none has come.
    answered: AtomicU64,
    /// When the last failure was noticed; 0 if there was none.
    failed: AtomicU64,
}

#[derive(Debug)]
enum State {
    /// The last outage ended at this moment; zero before the first outage.
    Reached(Instant),
    Away {
        since: Instant,
        /// Whether a refusal was logged during this outage.
        refused: bool,
        /// The latest error.
        error: LockError,
    },
    /// The server no longer belongs to the store.
    Left,
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
            reached: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
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
        let now = Instant::now();
        let is_news = match &mut *state {
            State::Reached(since) if *since > began => return,
            State::Left => return,
            State::Reached(_) => {
                *state = State::Away { since: now, refused, error: error.clone() };
                true
            }
            State::Away { refused: told, error: latest, .. } => {
                latest.clone_from(error);
                refused && !std::mem::replace(told, *told || refused)
            }
        };
        self.failed.store(now.as_nanos(), Ordering::SeqCst);
        self.reached.store(0, Ordering::SeqCst);
        if !is_news {
            return;
        }
        // Under the mutex, so that the last change is the one that is recorded last.
        metrics::connection(self.store, &self.address, Some(false));
        drop(state);
        let Self { product, address, consequence, .. } = self;
        if refused {
            tracing::error!(%error, "{product} at {address} refuses us: {consequence} until the configuration is fixed");
        } else {
            tracing::warn!(%error, "{product} at {address} cannot be reached: {consequence} until it can");
        }
    }

    /// Records that the server has answered a request that was sent at `sent`. This method takes no mutex.
    ///
    /// After a failure, only the answer to a later request shows that the server can be reached: an earlier answer may
    /// have waited in this process.
    pub(crate) fn answered(&self, sent: Instant) {
        let now = Instant::now().as_nanos();
        self.answered.store(now, Ordering::Relaxed);
        let is_later = || sent.as_nanos() > self.failed.load(Ordering::SeqCst);
        if self.reached.load(Ordering::Relaxed) == 0 && is_later() {
            self.reached.store(now, Ordering::SeqCst);
            // A failure may have been noticed since the check.
            if !is_later() {
                self.reached.store(0, Ordering::SeqCst);
            }
        }
    }

    /// Returns whether the server could not be reached when that was tried last.
    #[cfg(feature = "redis")]
    pub(crate) fn is_away(&self) -> bool {
        matches!(*lock(&self.state), State::Away { .. })
    }

    /// Returns what is known of the server.
    pub(crate) fn status(&self) -> ServerStatus {
        let moment = |nanos: &AtomicU64| match nanos.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Instant::from_nanos(nanos)),
        };
        let state = lock(&self.state);
        let status = ServerStatus::new(self.address.clone())
            .with_connection(moment(&self.reached))
            .with_last_answer(moment(&self.answered));
        match &*state {
            State::Reached(_) | State::Left => status,
            State::Away { since, error, .. } => status.with_outage(*since, error.clone()),
        }
    }

    /// Records that the server no longer belongs to the store: whether it can be reached is not told any more.
    #[cfg(feature = "redis")]
    pub(crate) fn server_left(&self) {
        let mut state = lock(&self.state);
        *state = State::Left;
        metrics::connection(self.store, &self.address, None);
    }

    /// Records that the store was reached.
    pub(crate) fn ends(&self) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        self.answered.store(now.as_nanos(), Ordering::Relaxed);
        if self.reached.load(Ordering::Relaxed) == 0 {
            self.reached.store(now.as_nanos(), Ordering::Relaxed);
        }
        if matches!(*state, State::Left) {
            return;
        }
        metrics::connection(self.store, &self.address, Some(true));
        if let State::Away { since, .. } = *state {
            *state = State::Reached(now);
            drop(state);
            let outage = now.saturating_duration_since(since);
            tracing::info!(?outage, "{} at {} can be reached again", self.product, self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outage() -> Outage {
        Outage::of("test", "Server", "host:1".into(), "nothing works")
    }

    fn failure(text: &str) -> LockError {
        LockError::backend(text)
    }

    #[test]
    fn the_status_follows_the_outages() {
        let outage = outage();
        let status = outage.status();
        assert_eq!(status.address(), "host:1");
        assert!(!status.is_reachable() && status.last_answer_age().is_none() && status.error().is_none());

        outage.ends();
        let status = outage.status();
        assert!(status.is_reachable() && status.connected_for().is_some());
        assert!(status.last_answer_age().is_some() && status.outage_for().is_none());

        outage.begins(Instant::now(), &failure("gone"));
        outage.begins(Instant::now(), &failure("still gone"));
        let status = outage.status();
        assert!(!status.is_reachable() && status.connected_for().is_none());
        assert!(status.last_answer_age().is_some() && status.outage_for().is_some());
        assert!(status.error().expect("away").to_string().contains("still gone"), "the latest error");

        outage.ends();
        let status = outage.status();
        assert!(status.is_reachable() && status.outage_for().is_none() && status.error().is_none());
    }

    #[cfg(feature = "redis")]
    #[test]
    fn nothing_is_told_of_a_server_that_has_left() {
        let outage = outage();
        outage.begins(Instant::now(), &failure("away"));
        outage.server_left();
        assert!(outage.status().error().is_none());
        outage.begins(Instant::now(), &failure("away again"));
        assert!(outage.status().error().is_none());
        outage.ends();
        assert!(matches!(*lock(&outage.state), State::Left));
    }

    #[test]
    fn only_the_answer_to_a_later_request_shows_that_the_server_is_back() {
        let outage = outage();
        let before = Instant::now();
        outage.answered(before);
        assert!(outage.status().is_reachable(), "a connection of the user's pool");
        outage.begins(Instant::now(), &failure("gone"));
        outage.answered(before);
        assert!(!outage.status().is_reachable(), "the answer may have waited in this process");
        std::thread::sleep(std::time::Duration::from_millis(1));
        outage.answered(Instant::now());
        let status = outage.status();
        assert!(status.is_reachable() && status.outage_for().is_some(), "refused over new connections only");
    }

    /// The failure of an attempt that began before the last outage ended.
    #[test]
    fn late_evidence_of_an_outage_that_has_ended_changes_nothing() {
        let outage = outage();
        let before = Instant::now();
        std::thread::sleep(std::time::Duration::from_millis(1));
        outage.begins(Instant::now(), &failure("gone"));
        outage.ends();
        outage.begins(before, &failure("late"));
        assert!(outage.status().is_reachable() && outage.status().error().is_none());
    }
}
