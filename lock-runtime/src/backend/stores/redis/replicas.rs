//! Confirmation by replicas (`min_replicas` in the URL): no deadline counts before a number of replicas has the lease.
//!
//! A lease is renewed over a connection on which `WAIT` follows the renewal. The server counts the replicas that have all
//! writes from before the `WAIT` on the same connection; it executes no further call on this connection meanwhile, so
//! the connection is used for nothing else. The lease is renewed rather than only waited for, because the renewal shows
//! that the server that is asked has the lease: after a failover, another server may be asked than the one that
//! granted it.
//!
//! All renewals that are due while a `WAIT` is under way share the next one. The library's own thread has a connection of
//! its own, so that no acquisition delays the renewal of a held lock.

use std::{
    iter, mem,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    task::unconstrained,
    time::timeout,
};

use super::node::{self, Renewals, Renewed};
use crate::{
    LockError,
    backend::{
        BoxFuture, LeaseId,
        kits::redis::{
            batch::join_all,
            config::Config,
            error::Failure,
            net::{Connection, Connections, Pushes, Server, Service},
        },
    },
    time::{clock::Instant, deadline::valid_until},
};

/// Upper bound on the calls that share a `WAIT`; more would hold up the server for too long.
const MAX_CALLS: usize = 128;
/// Time limit of a confirmation, in time limits of a call: the calls before it may take as long as its own.
const TURNS: u32 = 2;
/// Upper bound on the rounds of one batch: a call whose script the server did not know is made again.
const MAX_ROUNDS: usize = 3;

/// The connections over which leases are confirmed.
#[derive(Debug)]
pub(crate) struct Replicas {
    connections: Arc<Connections<Confirming>>,
}

impl Replicas {
    /// Creates the connections to a server whose settings ask for replicas; `None` if they ask for none.
    pub(super) fn of(server: &Arc<Server>) -> Option<Arc<Self>> {
        let needed = server.config().min_replicas;
        let confirming = Confirming { needed };
        let connections = || Arc::new(Connections::new(Arc::clone(server), confirming));
        (needed > 0).then(|| Arc::new(Self { connections: connections() }))
    }

    /// Returns an upper bound on the time for which a confirmation waits for its turn and for its answer.
    pub(super) fn limit(config: &Config) -> Duration {
        // It may be made twice.
        2 * TURNS * config.response_timeout
    }

    /// Makes a connection for the renewals of held locks if there is none.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn connect_for_renewals(&self) -> Result<(), LockError> {
        if self.connections.can_renew() { Ok(()) } else { self.connections.connect_for_renewals().await }
    }

    /// Confirms a lease that was just granted, and returns its deadline; `None` if the lease is not there any more, or was
    /// revoked.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lease may still be renewed.
    pub(super) async fn confirm(&self, id: &LeaseId) -> Result<Option<Instant>, Failure> {
        let sent = Instant::now();
        let renewed = self.renew(&Arc::new(Renewals::of(iter::once(id)))).await?;
        Ok((renewed.first() == Some(&Renewed::Yes)).then(|| valid_until(sent, id.ttl)))
    }

    /// Renews leases of one length in one domain, and returns what became of each, once enough replicas have the
    /// renewals.
    ///
    /// # Cancel safety
    /// If the future is dropped, the renewals may still be applied.
    pub(super) async fn renew(&self, call: &Arc<Renewals>) -> Result<Vec<Renewed>, Failure> {
        match self.put(call).await {
            // The connection was unusable, perhaps for a long time: try once more over a new connection.
            Err(Failure::Disconnected(_) | Failure::GivenUp(_)) => self.put(call).await,
            answer => answer,
        }
    }

    async fn put(&self, call: &Arc<Renewals>) -> Result<Vec<Renewed>, Failure> {
        let line = self.connections.here().await?;
        let (tell, told) = oneshot::channel();
        let due = Due { call: Arc::clone(call), answer: tell };
        line.due.send(due).map_err(|_| Failure::runtime_gone())?;
        let limit = TURNS * line.connection.response_timeout();
        match timeout(limit, told).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Failure::runtime_gone()),
            Err(_) => Err(Failure::timed_out(limit)),
        }
    }
}

/// A renewal that waits for its turn.
#[derive(Debug)]
struct Due {
    call: Arc<Renewals>,
    answer: oneshot::Sender<Result<Vec<Renewed>, Failure>>,
}

/// A connection over which leases are confirmed.
#[derive(Debug)]
struct Line {
    connection: Arc<Connection>,
    due: mpsc::UnboundedSender<Due>,
}

impl AsRef<Connection> for Line {
    fn as_ref(&self) -> &Connection {
        &self.connection
    }
}

/// Confirms leases over a connection.
#[derive(Clone, Copy, Debug)]
struct Confirming {
    /// Number of replicas that must have a lease.
    needed: u32,
}

impl Service for Confirming {
    type Line = Line;

    fn pushes(&self) -> Arc<dyn Pushes> {
        Arc::new(NoPushes)
    }

    async fn begin(&self, connection: Arc<Connection>, _: &str) -> Result<Arc<Line>, LockError> {
        let (due, queue) = mpsc::unbounded_channel();
        tokio::spawn(confirm_all(Arc::downgrade(&connection), queue, self.needed));
        Ok(Arc::new(Line { connection, due }))
    }
}

/// Ignores the messages over a connection that has no subscription.
#[derive(Debug)]
struct NoPushes;

impl Pushes for NoPushes {
    fn take(&self, _: &redis::PushInfo) {}

    fn hang_up(&self, _: u64) {}
}

/// Runs the task of a connection, which ends with the connection.
async fn confirm_all(connection: Weak<Connection>, mut queue: mpsc::UnboundedReceiver<Due>, needed: u32) {
    loop {
        let mut batch = Vec::new();
        if queue.recv_many(&mut batch, MAX_CALLS).await == 0 {
            return;
        }
        let Some(connection) = connection.upgrade() else { return };
        for _ in 0..MAX_ROUNDS {
            batch.retain(|due| !due.answer.is_closed());
            if batch.is_empty() {
                break;
            }
            // The server may not be the primary any more.
            if !connection.is_usable() {
                for due in mem::take(&mut batch) {
                    let _ = due.answer.send(Err(Failure::not_sent()));
                }
                break;
            }
            batch = confirm(&connection, batch, needed).await;
        }
        for due in batch {
            let _ = due.answer.send(Err(Failure::timed_out(connection.response_timeout())));
        }
    }
}

/// Sends a batch, and one `WAIT` behind it. Returns the calls whose script the server did not know.
async fn confirm(connection: &Connection, batch: Vec<Due>, needed: u32) -> Vec<Due> {
    let mut answers: Vec<_> = batch.iter().map(|_| Ok(None)).collect();
    let mut confirmed = Err(Failure::not_sent());
    let mut calls: Vec<BoxFuture<'_, ()>> = Vec::with_capacity(batch.len() + 1);
    for (due, answer) in batch.iter().zip(&mut answers) {
        calls.push(Box::pin(async { *answer = node::renew_once(connection, &due.call).await }));
    }
    calls.push(Box::pin(async { confirmed = wait(connection, needed).await }));
    // One poll without tokio's task budget puts all calls into the driver's queue in their order, the `WAIT` last.
    unconstrained(join_all(calls)).await;
    let mut unknown = Vec::new();
    for (due, answer) in batch.into_iter().zip(answers) {
        let answer = match answer {
            Ok(None) => {
                unknown.push(due);
                continue;
            }
            // Nothing was written.
            Ok(Some(renewed)) if !renewed.contains(&Renewed::Yes) => Ok(renewed),
            Ok(Some(renewed)) => match &confirmed {
                Ok(count) if *count >= needed => Ok(renewed),
                Ok(count) => Err(Failure::Unconfirmed(too_few(*count, needed))),
                Err(failure) => Err(failure.clone()),
            },
            Err(failure) => Err(failure),
        };
        let _ = due.answer.send(answer);
    }
    unknown
}

/// Waits until `needed` replicas have the writes of the connection, for most of the time limit of a call. Returns how many
/// have.
async fn wait(connection: &Connection, needed: u32) -> Result<u32, Failure> {
    let limit = connection.response_timeout().mul_f64(0.75).max(Duration::from_millis(1));
    let mut call = redis::cmd("WAIT");
    call.arg(needed).arg(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    connection.call(&call).await
}

fn too_few(count: u32, needed: u32) -> LockError {
    LockError::backend(format!(
        "only {count} of the {needed} Redis replicas that `min_replicas` asks for have the lock; are they connected and in \
         sync?"
    ))
}
