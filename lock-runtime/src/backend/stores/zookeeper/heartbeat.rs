//! The task that sends the heartbeats of a session and ends the session.

use std::{
    sync::{Arc, Weak},
    thread,
};

use ::zookeeper_client as zk;
use tokio::task::JoinSet;

use super::{
    error::Failure,
    session::{SESSION_OVER, Session},
    validity::Probe,
};
use crate::{
    background,
    time::clock::{self, Instant},
};

/// Upper bound on pending heartbeats: more heartbeats would reveal nothing about a silent server.
const MOST_UNDER_WAY: usize = 10;

/// Number of session timeouts without an answer after which the session is given up, even if the driver has not
/// reported the end of the session: the driver's task may be gone, as after a panic.
const FORGOTTEN: u32 = 3;

const REFUSED: &str = "ZooKeeper refused the credentials when the connection was made again";

/// The task of the heartbeats. If a panic ends the task, as in a subscriber of the log, the task starts again.
struct Task {
    session: Weak<Session>,
    states: zk::StateWatcher,
    /// The state in which a panic has left the connection, to be handled once more.
    left: Option<zk::SessionState>,
}

impl Task {
    async fn state(&mut self) -> zk::SessionState {
        match self.left.take() {
            Some(state) => state,
            None => self.states.changed().await,
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // An ended session needs no task, which would panic over and over when it logs the end again.
        let lasts = |session: Arc<Session>| !session.lifetime.has_ended();
        if thread::panicking() && self.session.upgrade().is_some_and(lasts) {
            let left = Some(self.states.state()).filter(|state| *state != zk::SessionState::SyncConnected);
            let (session, states) = (Weak::clone(&self.session), self.states.clone());
            background::handle().spawn(run(Self { session, states, left }));
        }
    }
}

/// Sends heartbeats and reports their answers to the session, until the session has ended or is dropped.
pub(super) async fn keep(session: Weak<Session>, states: zk::StateWatcher) {
    run(Task { session, states, left: None }).await;
}

async fn run(mut task: Task) {
    let session = Weak::clone(&task.session);
    let Some(interval) = session.upgrade().map(|session| session.interval()) else { return };
    let mut connected = true;
    // The pending heartbeats: several if answers take longer than an interval.
    let mut under_way = JoinSet::new();
    let mut heard_since_last = true;
    let mut heard = Instant::now();
    let mut next = Instant::now() + interval;
    loop {
        tokio::select! {
            biased;
            state = task.state() => {
                let Some(session) = session.upgrade() else { return };
                connected = state == zk::SessionState::SyncConnected;
                match state {
                    zk::SessionState::SyncConnected => next = Instant::now(),
                    zk::SessionState::Disconnected | zk::SessionState::ConnectedReadOnly => {
                        session.disconnected();
                        under_way = JoinSet::new();
                    }
                    zk::SessionState::AuthFailed => {
                        session.end(REFUSED);
                        return tracing::warn!(
                            "ZooKeeper refuses credentials that it accepted before; the session is lost"
                        );
                    }
                    _ => return session.end(SESSION_OVER),
                }
            }
            Some(answered) = under_way.join_next() => {
                let Some(session) = session.upgrade() else { return };
                let Ok((sent, answer)) = answered else { continue };
                match answer {
                    Ok(probe) => {
                        (heard_since_last, heard) = (true, Instant::now());
                        session.heartbeat_answered(sent, probe);
                        session.watch_held();
                    }
                    Err(error) => {
                        tracing::debug!(%error, "a heartbeat failed");
                        match Failure::of(error) {
                            Failure::Ended(_) => return session.end(SESSION_OVER),
                            Failure::Refused(_) => heard = Instant::now(),
                            Failure::Unknown(_) => {}
                        }
                    }
                }
            }
            () = clock::sleep_until(next) => {
                let sent = Instant::now();
                next = sent + interval;
                let Some(session) = session.upgrade() else { return };
                if heard + session.timeout() * FORGOTTEN <= sent {
                    session.end(SESSION_OVER);
                    return tracing::warn!(
                        "the session with ZooKeeper is given up: no heartbeat was answered for long"
                    );
                }
                // No heartbeat was answered for a whole interval, although heartbeats are pending.
                if !std::mem::take(&mut heard_since_last) && !under_way.is_empty() {
                    session.suspect();
                }
                if connected && under_way.len() < MOST_UNDER_WAY {
                    under_way.spawn(async move { (sent, probe(session).await) });
                }
            }
        }
    }
}

/// Sends one heartbeat and waits for its answer.
async fn probe(session: Arc<Session>) -> Result<Probe, zk::Error> {
    if !session.has_nodes() {
        return session.client.sync("/").await.map(|()| Probe::Read);
    }
    session.write_barrier().await.map(|()| Probe::Write)
}
