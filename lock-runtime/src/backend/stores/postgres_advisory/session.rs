//! One session with the server, shared by all locks of a store: its lifetime, and the requests to its keeper.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{SetOnce, mpsc, oneshot},
    time::timeout,
};

use super::{names::Name, shared::Shared};
use crate::{
    LockError, LockKey,
    backend::{self, common::session::Lifetime, kits::postgres::error},
    time::{clock::Instant, deadline::valid_until},
};

/// A request to the keeper of a session.
pub(super) enum Request {
    Take(Take),
    Free(Free),
    Inquire(Inquire),
    Ping(oneshot::Sender<()>),
}

/// A request for a lock.
pub(super) struct Take {
    pub(super) key: LockKey,
    pub(super) name: Name,
    /// How long the waiter is to be notified of releases; zero: not at all.
    pub(super) wanted: Duration,
    /// What the acquisition states of itself.
    pub(super) signature: Arc<str>,
    /// Closed once the request's caller has gone.
    pub(super) answer: oneshot::Sender<Taken>,
}

/// The question whether other sessions wait for a lock that the session has.
pub(super) struct Inquire {
    pub(super) name: Name,
    /// Closed once the caller has gone.
    pub(super) answer: oneshot::Sender<bool>,
}

/// The answer to a request for a lock.
pub(super) enum Taken {
    Granted {
        hold: Arc<dyn backend::Session>,
        version: u64,
        /// When the request was sent.
        since: Instant,
    },
    Held,
    /// The lock's row is locked by another transaction.
    Locked,
    Failed(LockError),
}

/// A request to give a lock back, which is never sent twice for one hold.
pub(super) struct Free {
    pub(super) name: Name,
    pub(super) end: Arc<SetOnce<End>>,
}

impl Drop for Free {
    fn drop(&mut self) {
        // If the request has its answer, this line has no effect. Otherwise, the session ended before the answer.
        let _ = self.end.set(End::Broken);
    }
}

/// How a hold ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Released,
    NotHeld,
    /// The session ended while the lock was given back. The lock is free, perhaps since before the release.
    Broken,
}

/// A session. When a session is dropped, it ends, and all its locks become free.
pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    /// The number of the server's process.
    pub(super) pid: i32,
    /// The number of the session's mark.
    pub(super) mark: i64,
    /// The deadline, the end of the session, and the session's holds by the numbers of their locks. Each answer makes
    /// the deadline later.
    pub(super) lifetime: Lifetime,
    /// Whether a statement had no answer in time: new locks are taken in another session, and this session lasts only
    /// for the locks that it has.
    suspect: AtomicBool,
    requests: mpsc::UnboundedSender<Request>,
}

impl Session {
    /// Creates a session whose first statement was sent at `sent`.
    pub(super) fn new(
        shared: Arc<Shared>,
        (pid, mark): (i32, i64),
        sent: Instant,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Request>) {
        let (requests, to_keeper) = mpsc::unbounded_channel();
        let lifetime = Lifetime::new(valid_until(sent, shared.config.session_timeout));
        let session = Self { shared, pid, mark, lifetime, suspect: AtomicBool::new(false), requests };
        (Arc::new(session), to_keeper)
    }

    /// Moves the deadline forward, now that a statement sent at `sent` was executed: the server counts the silence from
    /// the end of the statement.
    pub(super) fn answered(&self, sent: Instant) {
        self.lifetime.extend(valid_until(sent, self.shared.config.session_timeout));
    }

    pub(super) fn suspect(&self) {
        self.suspect.store(true, Ordering::Release);
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.suspect.load(Ordering::Acquire)
    }

    /// Requests a lock; returns the receiver of the answer.
    pub(super) fn request(
        &self,
        key: &LockKey,
        name: &Name,
        wanted: Duration,
        signature: &Arc<str>,
    ) -> oneshot::Receiver<Taken> {
        let (answer, answered) = oneshot::channel();
        let signature = Arc::clone(signature);
        let take = Take { key: key.clone(), name: name.clone(), wanted, signature, answer };
        // If the session has ended, the receiver fails.
        let _ = self.requests.send(Request::Take(take));
        answered
    }

    /// Gives a lock back; `free.end` is set once the lock is given back.
    pub(super) fn free(&self, free: Free) {
        if self.lifetime.has_ended() {
            let _ = free.end.set(End::NotHeld);
        } else {
            // If the keeper has ended, sending fails, and drops the request. `Drop` of the request then sets
            // `free.end`.
            let _ = self.requests.send(Request::Free(free));
        }
    }

    /// Returns whether other sessions wait for a lock that this session has; `None` without an answer.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn is_wanted(&self, name: &Name) -> Option<bool> {
        let (answer, answered) = oneshot::channel();
        let _ = self.requests.send(Request::Inquire(Inquire { name: name.clone(), answer }));
        self.answer(answered).await.ok()?
    }

    /// Checks that the server answers; returns `None` if the session has ended.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn ping(&self) -> Result<Option<()>, LockError> {
        let (answer, answered) = oneshot::channel();
        let _ = self.requests.send(Request::Ping(answer));
        self.answer(answered).await
    }

    /// Waits for an answer, for the response timeout at most. Returns `None` if the session has ended, and with it any
    /// hold that the request may have made.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn answer<T>(
        &self,
        answered: impl Future<Output = Result<T, oneshot::error::RecvError>>,
    ) -> Result<Option<T>, LockError> {
        let answer = timeout(self.shared.config.of_server.response_timeout, answered).await;
        answer.map(Result::ok).map_err(|_| self.silent())
    }

    /// Returns the error for a request without an answer.
    pub(super) fn silent(&self) -> LockError {
        let server = &self.shared.config.of_server;
        error::silent(server.response_timeout, server)
    }
}

/// Returns the error for a request to a session that has ended.
pub(super) fn ended() -> LockError {
    error::backend("the session with PostgreSQL has ended")
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("pid", &self.pid)
            .field("ended", &self.lifetime.has_ended())
            .finish_non_exhaustive()
    }
}
