//! One session with the ensemble, shared by all locks of a store: whether and until when it may be relied on, and what is
//! held in it.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use ::zookeeper_client as zk;
use tokio::sync::watch;

use super::{
    config::Config,
    error::Failure,
    validity::{Heartbeats, Probe},
};
use crate::{
    LockError, LockErrorKind,
    backend::common::outage::Outage,
    sync::lock,
    time::{clock::Instant, deadline::valid_until},
};

/// What is heard of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// They answer, and what they grant may be relied on for a while.
    Answering,
    /// They do not, or have only just begun to again; the session may still live.
    Suspect,
    /// It is over. Final.
    Ended,
}

/// What is held in a session and ends with it.
pub(super) trait InSession: Send + Sync {
    /// It is not there any more.
    fn lost(&self, why: &str);

    /// Begins to watch whether it is removed by hand. To be called on the library's own runtime.
    fn watch(self: Arc<Self>);
}

/// A session; dropped, it is closed, and its nodes go with it.
pub(super) struct Session {
    client: zk::Client,
    acls: zk::Acls<'static>,
    response_timeout: Duration,
    beats: Mutex<Heartbeats>,
    /// Until when the session may be relied on; writes move it.
    valid_until: AtomicU64,
    /// How many nodes there are in it, or may be.
    nodes: AtomicUsize,
    state: watch::Sender<State>,
    /// What is held in it.
    held: Mutex<HashMap<u64, Weak<dyn InSession>>>,
    numbers: AtomicU64,
    outage: Arc<Outage>,
}

impl Session {
    /// With a client that was asked for at `sent`.
    pub(super) fn new(client: zk::Client, sent: Instant, config: &Config, outage: Arc<Outage>) -> Self {
        tracing::debug!(servers = config.servers, timeout = ?client.session_timeout(), "session with ZooKeeper");
        Self {
            acls: config.acls(),
            response_timeout: config.response_timeout,
            // The leader itself made it after that, by a write.
            valid_until: AtomicU64::new(valid_until(sent, client.session_timeout()).as_nanos()),
            beats: Mutex::new(Heartbeats::new(client.session_timeout(), sent)),
            nodes: AtomicUsize::new(0),
            state: watch::channel(State::Answering).0,
            held: Mutex::default(),
            numbers: AtomicU64::new(0),
            outage,
            client,
        }
    }

    pub(super) fn client(&self) -> &zk::Client {
        &self.client
    }

    pub(super) fn acls(&self) -> zk::Acls<'static> {
        self.acls
    }

    /// As the servers granted it, which may be other than what was asked for.
    pub(super) fn timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    pub(super) fn valid_until(&self) -> Instant {
        Instant::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    fn beats(&self) -> MutexGuard<'_, Heartbeats> {
        lock(&self.beats)
    }

    /// A write that was sent at `sent` has been carried out.
    pub(super) fn wrote(&self, sent: Instant) {
        let until = self.beats().valid_until(sent);
        if let Some(until) = until {
            self.valid_until.fetch_max(until.as_nanos(), Ordering::AcqRel);
        }
    }

    /// How long to wait between two heartbeats.
    pub(super) fn interval(&self) -> Duration {
        self.beats().interval()
    }

    /// A heartbeat that was sent at `sent` was answered.
    pub(super) fn heartbeat_answered(&self, sent: Instant, probe: Probe) {
        let interval = {
            let mut beats = self.beats();
            beats.answered(sent, Instant::now());
            beats.interval()
        };
        let proved = match probe {
            Probe::Write => {
                self.wrote(sent);
                self.valid_until()
            }
            // The write that asks for a lock would prove as much.
            Probe::Read => {
                self.beats().valid_until(sent).unwrap_or(Instant::from_nanos(0)).max(self.valid_until())
            }
        };
        // Three intervals pass until something is proved that was sent after an outage. What is granted by less would be
        // given back as worth nothing.
        let enough = proved.remaining() >= interval * 4;
        self.set_state(if enough { State::Answering } else { State::Suspect });
        if enough {
            self.outage.ends();
        }
    }

    /// The connection was lost. The session may still live.
    pub(super) fn disconnected(&self) {
        let error = LockError::new(LockErrorKind::Backend, "the connection was lost");
        self.outage.begins(Instant::now(), &error);
        self.suspect();
    }

    /// The servers are silent. The session may still live.
    pub(super) fn suspect(&self) {
        self.set_state(State::Suspect);
    }

    /// A node begins that may be in this session, until [`node_ends`](Self::node_ends).
    pub(super) fn node_begins(&self) {
        self.nodes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn node_ends(&self) {
        self.nodes.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether there is a node in it, or may be.
    pub(super) fn has_nodes(&self) -> bool {
        self.nodes.load(Ordering::Relaxed) > 0
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.state.borrow() == State::Ended
    }

    /// What is heard of the servers, from now on.
    pub(super) fn states(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Completes when the servers answer; at once, where nothing else is known.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn answering(&self) -> Result<(), Failure> {
        let mut states = self.states();
        let known = states.wait_for(|state| *state != State::Suspect);
        match tokio::time::timeout(self.response_timeout, known).await {
            Ok(Ok(state)) if *state == State::Answering => Ok(()),
            Ok(_) => Err(Failure::Ended(LockError::new(LockErrorKind::Backend, SESSION_OVER))),
            Err(_) => Err(Failure::Unknown(silent())),
        }
    }

    /// A call that has been sent; within the timeout of an answer.
    ///
    /// # Cancel safety
    /// Dropped, the call is made all the same.
    pub(super) async fn answer<T>(
        &self,
        sent: impl Future<Output = Result<T, zk::Error>>,
    ) -> Result<T, zk::Error> {
        // What the driver sends while it is not connected waits there without an end.
        tokio::time::timeout(self.response_timeout, sent).await.unwrap_or(Err(zk::Error::Timeout))
    }

    /// A write that changes nothing. When it is answered, the server to which we are connected knows all that was
    /// carried out before it; after a `sync` it may know only what a leader did that was cut off and replaced.
    ///
    /// # Cancel safety
    /// Dropped, it is made all the same.
    pub(super) async fn write_barrier(&self) -> Result<(), zk::Error> {
        let mut write = self.client.new_multi_writer();
        write.add_check_version("/", -1)?;
        voted(write.commit().await)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<u64, Weak<dyn InSession>>> {
        lock(&self.held)
    }

    /// Tells this hold when the session ends; returns the number by which it is [forgotten](Self::forget).
    pub(super) fn remember(&self, node: &Arc<dyn InSession>) -> u64 {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.held().insert(number, Arc::downgrade(node));
        if self.has_ended() {
            // Ended before it could be told with the others.
            node.lost(SESSION_OVER);
        }
        number
    }

    pub(super) fn forget(&self, number: u64) {
        self.held().remove(&number);
    }

    fn set_state(&self, state: State) {
        self.state.send_if_modified(|now| {
            let changes = *now != state && *now != State::Ended;
            if changes {
                tracing::debug!(?state, "session with ZooKeeper");
                *now = state;
            }
            changes
        });
    }

    /// Ends the session: all that is held in it is lost.
    pub(super) fn end(&self, why: &str) {
        self.valid_until.store(0, Ordering::Release);
        self.set_state(State::Ended);
        let held = std::mem::take(&mut *self.held());
        for node in held.into_values().filter_map(|node| node.upgrade()) {
            node.lost(why);
        }
    }

    /// Holds that have lasted for a heartbeat are watched: an operator may delete their nodes.
    pub(super) fn watch_held(&self) {
        let held: Vec<_> = self.held().values().filter_map(Weak::upgrade).collect();
        held.into_iter().for_each(InSession::watch);
    }
}

pub(super) const SESSION_OVER: &str = "the session with ZooKeeper is over";

/// The error of callers that wait for servers which went silent.
pub(super) fn silent() -> LockError {
    LockError::new(LockErrorKind::Backend, "ZooKeeper does not answer, or too late to rely on the session")
}

/// Whether what was answered shows that a majority has voted for a transaction of a session that lived.
fn voted(answer: Result<Vec<zk::MultiWriteResult>, zk::MultiWriteError>) -> Result<(), zk::Error> {
    match answer {
        // Of a session that it ends, the leader lets the check fail as well.
        Err(zk::MultiWriteError::OperationFailed { source: ended @ zk::Error::SessionExpired, .. }) => {
            Err(ended)
        }
        // That the check fails, because the chroot was removed or must not be read, has been voted for as well.
        Ok(_) | Err(zk::MultiWriteError::OperationFailed { .. }) => Ok(()),
        Err(zk::MultiWriteError::RequestFailed { source }) => Err(source),
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.client.session_id())
            .field("state", &*self.state.borrow())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_fails_was_voted_for_but_not_in_a_session_that_is_being_ended() {
        let failed = |source| voted(Err(zk::MultiWriteError::OperationFailed { index: 0, source }));
        for answer in [voted(Ok(vec![])), failed(zk::Error::NoNode), failed(zk::Error::NoAuth)] {
            assert_eq!(answer, Ok(()));
        }
        assert_eq!(failed(zk::Error::SessionExpired), Err(zk::Error::SessionExpired));
        let lost = zk::MultiWriteError::RequestFailed { source: zk::Error::ConnectionLoss };
        assert_eq!(voted(Err(lost)), Err(zk::Error::ConnectionLoss));
    }
}
