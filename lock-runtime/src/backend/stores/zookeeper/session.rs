//! One session with the ensemble, shared by all locks of a store: its state, its deadline and its holds.

use std::{
    fmt,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use ::zookeeper_client as zk;
use tokio::sync::watch;

use super::{
    config::Config,
    error::Failure,
    held_node::{HeldNode, Readings},
    validity::{Heartbeats, Probe},
    watches::Watches,
};
use crate::{
    LockError,
    backend::common::{outage::Outage, session::Lifetime},
    sync::lock,
    time::{clock::Instant, deadline::valid_until},
};

/// Whether the servers answer in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The servers answer, and a new grant may be relied on for a while.
    Answering,
    /// The servers do not answer, or have only just resumed; the session may still live.
    Suspect,
    /// The session has ended for good.
    Ended,
}

/// A session. Dropping it closes it, which removes its nodes.
pub(super) struct Session {
    pub(super) client: zk::Client,
    /// The ACL of our nodes.
    pub(super) acls: zk::Acls<'static>,
    response_timeout: Duration,
    beats: Mutex<Heartbeats>,
    /// The session's deadline, which writes move forward, its end, and its holds.
    pub(super) lifetime: Lifetime<Weak<dyn HeldNode>>,
    /// Cloned for each node that exists in the session, or may exist.
    pub(super) nodes: Arc<()>,
    pub(super) watches: Watches,
    readings: Readings,
    state: watch::Sender<State>,
    outage: Arc<Outage>,
}

impl Session {
    /// Wraps a client that was requested at `sent`.
    pub(super) fn new(client: zk::Client, sent: Instant, config: &Config, outage: Arc<Outage>) -> Self {
        tracing::debug!(servers = config.servers, timeout = ?client.session_timeout(), "session with ZooKeeper");
        Self {
            acls: config.acls(),
            response_timeout: config.response_timeout,
            // The leader itself made the session after that, by a write.
            lifetime: Lifetime::new(valid_until(sent, client.session_timeout())),
            beats: Mutex::new(Heartbeats::new(client.session_timeout(), sent)),
            nodes: Arc::default(),
            watches: Watches::below(client.path()),
            readings: Readings::default(),
            state: watch::channel(State::Answering).0,
            outage,
            client,
        }
    }

    /// The session timeout that the servers granted, which may differ from the one requested.
    pub(super) fn timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    /// Moves the deadline forward, now that a write sent at `sent` was carried out.
    pub(super) fn wrote(&self, sent: Instant) {
        let until = lock(&self.beats).valid_until(sent);
        if let Some(until) = until {
            self.lifetime.extend(until);
        }
    }

    /// Time between two heartbeats.
    pub(super) fn interval(&self) -> Duration {
        lock(&self.beats).interval()
    }

    /// Records that a heartbeat sent at `sent` was answered.
    pub(super) fn heartbeat_answered(&self, sent: Instant, probe: Probe) {
        lock(&self.beats).answered(sent, Instant::now());
        let proved = match probe {
            Probe::Write => {
                self.wrote(sent);
                self.lifetime.valid_until()
            }
            // The write that asks for a lock would prove as much.
            Probe::Read => {
                let proved = lock(&self.beats).valid_until(sent);
                proved.unwrap_or(Instant::from_nanos(0)).max(self.lifetime.valid_until())
            }
        };
        // After an outage, three intervals pass before a heartbeat sent since then proves anything. A grant that
        // rests on less would be given back as worthless.
        let enough = proved.remaining() >= self.interval() * 4;
        self.set_state(if enough { State::Answering } else { State::Suspect });
        if enough {
            self.outage.ends();
        }
    }

    /// Records that the connection was lost. The session may still live.
    pub(super) fn disconnected(&self) {
        let error = LockError::backend("the connection was lost");
        // The log comes last, because its subscriber may panic.
        self.suspect();
        self.outage.begins(Instant::now(), &error);
    }

    /// Records that the servers are silent. The session may still live.
    pub(super) fn suspect(&self) {
        self.set_state(State::Suspect);
    }

    /// Whether a node exists in the session, or may exist.
    pub(super) fn has_nodes(&self) -> bool {
        Arc::strong_count(&self.nodes) > 1
    }

    /// Subscribes to the changes of the state.
    pub(super) fn states(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Waits until the servers answer, for the response timeout at most; returns at once unless they are known to be
    /// silent.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn answering(&self) -> Result<(), Failure> {
        let ended = || Failure::Ended(LockError::backend(SESSION_OVER));
        let mut states = self.states();
        let known = states.wait_for(|state| *state != State::Suspect);
        match tokio::time::timeout(self.response_timeout, known).await {
            Ok(Ok(state)) if *state == State::Answering => Ok(()),
            Ok(_) => Err(ended()),
            // A panic may have kept the end of the session from its state.
            Err(_) if self.lifetime.has_ended() => Err(ended()),
            Err(_) => Err(Failure::Unknown(silent())),
        }
    }

    /// Waits for the answer to a call that has been sent, for the response timeout at most.
    ///
    /// # Cancel safety
    /// Dropping the future does not cancel the call.
    pub(super) async fn answer<T>(
        &self,
        sent: impl Future<Output = Result<T, zk::Error>>,
    ) -> Result<T, zk::Error> {
        // While disconnected, the driver keeps requests in its queue without a time limit.
        tokio::time::timeout(self.response_timeout, sent).await.unwrap_or(Err(zk::Error::Timeout))
    }

    /// Makes a write that changes nothing.
    ///
    /// When it is answered, the server to which we are connected knows everything that was carried out before it.
    /// After a `sync` it may know only the changes of a leader that was cut off and replaced.
    ///
    /// # Cancel safety
    /// Dropping the future does not cancel a write that was sent.
    pub(super) async fn write_barrier(&self) -> Result<(), zk::Error> {
        let mut write = self.client.new_multi_writer();
        write.add_check_version("/", -1)?;
        voted(write.commit().await)
    }

    fn set_state(&self, state: State) {
        let changed = self.state.send_if_modified(|now| {
            let changes = *now != state && *now != State::Ended;
            if changes {
                *now = state;
            }
            changes
        });
        if changed {
            tracing::debug!(?state, "session with ZooKeeper");
        }
    }

    /// Ends the session: all its holds are lost.
    pub(super) fn end(&self, why: &str) {
        self.lifetime.end(why);
        self.set_state(State::Ended);
    }

    /// Watches the nodes of the holds that have lasted until this heartbeat: an operator may delete a node, or revoke the
    /// grant.
    pub(super) fn watch_held(&self) {
        let held = self.lifetime.registered();
        let held = held.iter().filter_map(Weak::upgrade);
        self.readings.begin(held.filter(|node| !Arc::clone(node).watch()).collect());
    }
}

pub(super) const SESSION_OVER: &str = "the session with ZooKeeper is over";

/// The error of callers that wait for silent servers.
pub(super) fn silent() -> LockError {
    LockError::backend("ZooKeeper does not answer, or answers too late to rely on the session")
}

/// Returns `Ok` if the answer shows that a majority has voted for a transaction of a live session.
fn voted(answer: Result<Vec<zk::MultiWriteResult>, zk::MultiWriteError>) -> Result<(), zk::Error> {
    match answer {
        // The leader also lets the check fail in a session that it is ending.
        Err(zk::MultiWriteError::OperationFailed { source: ended @ zk::Error::SessionExpired, .. }) => {
            Err(ended)
        }
        // A check that fails because the chroot was removed or must not be read was voted for as well.
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
