//! A server at one address, and whether the store's server is still there.

use std::{
    fmt, mem,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

use super::{super::config::Config, dial::Dial, stream::Dialled};
use crate::{LockError, backend::FindingCode, sync::lock, time::clock::Instant};

/// An open connection to a [`Place`].
pub(super) trait Open: fmt::Debug + Send + Sync {
    /// Makes new calls use another connection.
    fn give_up(&self, why: &str);
}

/// The server of a store at one address, with the open connections to the server.
#[derive(Debug)]
pub(super) struct Place {
    config: Config,
    dial: Dial,
    /// When the question was sent whose answer last named this place.
    confirmed: AtomicU64,
    /// When the last sign was seen that the server may be elsewhere.
    doubted: AtomicU64,
    /// The connections to this place; `None` once the server is known to be elsewhere.
    connections: Mutex<Option<Vec<Weak<dyn Open>>>>,
    left: AtomicBool,
    on_leave: Notify,
    /// The connection for questions about the slots of a cluster, kept for the next question.
    pub(super) kept: Mutex<Option<Dialled>>,
    /// Notified of each new doubt, if given.
    on_doubt: Option<Arc<Notify>>,
}

impl Place {
    /// Creates the place that was named in an answer to a question sent at `confirmed`.
    pub(super) fn new(config: Config, confirmed: Instant) -> Result<Arc<Self>, LockError> {
        Self::watched(config, confirmed, None)
    }

    /// Creates the place like [`new`](Self::new); `on_doubt` is notified of signs that the server may be elsewhere.
    pub(super) fn watched(
        config: Config,
        confirmed: Instant,
        on_doubt: Option<Arc<Notify>>,
    ) -> Result<Arc<Self>, LockError> {
        Ok(Arc::new(Self {
            on_doubt,
            on_leave: Notify::new(),
            kept: Mutex::new(None),
            dial: Dial::new(&config)?,
            config,
            confirmed: AtomicU64::new(confirmed.as_nanos()),
            doubted: AtomicU64::new(0),
            connections: Mutex::new(Some(Vec::new())),
            left: AtomicBool::new(false),
        }))
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn dial(&self) -> &Dial {
        &self.dial
    }

    /// Records that an answer to a question sent at `sent` named this place.
    pub(super) fn confirm(&self, sent: Instant) {
        self.confirmed.fetch_max(sent.as_nanos(), Ordering::AcqRel);
    }

    /// Records a sign that the server may be elsewhere. The sign is ignored if this place was confirmed after `when`.
    pub(super) fn doubt(&self, when: Instant) {
        self.doubted.fetch_max(when.as_nanos(), Ordering::AcqRel);
        if let Some(on_doubt) = &self.on_doubt
            && self.is_doubted()
        {
            on_doubt.notify_one();
        }
    }

    /// Returns when the last sign was seen that the server may be elsewhere.
    pub(super) fn doubted_at(&self) -> Instant {
        Instant::from_nanos(self.doubted.load(Ordering::Acquire))
    }

    /// Returns whether the server may be elsewhere by now.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubted.load(Ordering::Acquire) > self.confirmed.load(Ordering::Acquire)
    }

    /// Registers a new connection, unless the server is known to be elsewhere.
    pub(super) fn admit(&self, connection: Weak<dyn Open>) -> Result<(), LockError> {
        match &mut *lock(&self.connections) {
            Some(connections) => {
                connections.retain(|open| open.strong_count() > 0);
                connections.push(connection);
                Ok(())
            }
            None => Err(self.replaced()),
        }
    }

    /// Returns the error of a connection that was being made when the server was known to be elsewhere.
    pub(super) fn replaced(&self) -> LockError {
        LockError::backend(format!(
            "Redis at {} was replaced by another server while a connection was made",
            self.config.address()
        ))
        .with_fault(FindingCode::ReadOnly)
    }

    /// Completes when the server is known to be elsewhere.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn is_left_at_last(&self) {
        let left = self.on_leave.notified();
        if !self.is_left() {
            left.await;
        }
    }

    /// Records that the server is elsewhere: no connection to this place is used for a new call from now on, and its
    /// messages are not believed.
    pub(super) fn leave(&self) {
        self.left.store(true, Ordering::Release);
        self.on_leave.notify_waiters();
        let connections = mem::take(&mut *lock(&self.connections));
        for connection in connections.into_iter().flatten().filter_map(|open| open.upgrade()) {
            connection.give_up("its server is no longer the primary");
        }
    }

    /// Returns whether the server is known to be elsewhere. What is here may be an old primary, whose grants do not count.
    pub(super) fn is_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_counts_until_a_later_question_confirms_the_place() {
        let at = |seconds: u64| Instant::from_nanos(seconds * 1_000_000_000);
        let config = Config::from_url("redis://h").expect("valid");
        let place = Place::new(config, at(10)).expect("valid");
        place.doubt(at(9));
        assert!(!place.is_doubted(), "the sign is older than the answer");
        place.doubt(at(11));
        assert!(place.is_doubted());
        place.confirm(at(10));
        assert!(place.is_doubted(), "the question was sent before the sign");
        place.confirm(at(12));
        assert!(!place.is_doubted());
        place.doubt(at(11));
        assert!(!place.is_doubted(), "a second sign of the same failure");
    }
}
