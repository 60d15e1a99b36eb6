//! A hold on the server, or an attempt at one that may have left something there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    error::Failure,
    net::{Connections, server_clock},
    queue::{
        self, Behind, Line, Participant,
        place::{OPEN, OPEN_FOREIGN},
    },
};
use crate::{
    LockError, LockErrorKind, LockKey,
    backend::{BoxFuture, Lease, LeaseId, Releasable, Released},
    time::clock::Instant,
};

#[derive(Debug)]
pub(super) struct RedisLease {
    pub(super) connections: Arc<Connections<Participant>>,
    pub(super) id: LeaseId,
    /// For an attempt whose acquisition was not answered.
    pub(super) unanswered: Option<Unanswered>,
    /// Others were in the queue when it was granted.
    pub(super) others_wait: bool,
    /// Not later than when it was granted.
    pub(super) granted_at: Instant,
    /// A release was sent and not answered: it may have been applied.
    pub(super) release_unanswered: AtomicBool,
}

/// A request that may take the lock, and was not answered.
#[derive(Debug)]
pub(super) struct Unanswered {
    /// Where it was sent: what is sent behind it there is sure to be executed after it.
    pub(super) on: Arc<Line>,
    /// From here on it is not executed any more.
    pub(super) until: Instant,
}

impl RedisLease {
    fn participant(&self) -> &Participant {
        self.connections.service()
    }

    /// For how long the lock is to be left open for clients that do not queue. Where others wait in the store, the
    /// script of the release decides.
    fn leave_open(&self, now: Instant) -> Duration {
        if self.is_contended() {
            return Duration::ZERO;
        }
        let shared = !self.participant().foreign().remaining(self.id.key.stored(), now).is_zero();
        let opening = if shared { OPEN_FOREIGN } else { OPEN };
        opening.due(self.granted_at, now)
    }

    /// Releases over a connection on which «not yours» is a definite answer or not.
    async fn release_over(&self, line: &Line, definite: bool) -> Result<Released, Failure> {
        let foreign = self.participant().foreign();
        let remembered = if foreign.is_empty() {
            Duration::ZERO
        } else {
            foreign.remaining(self.id.key.stored(), Instant::now())
        };
        let left = queue::leave(line.connection(), line.process(), &self.id, remembered).await;
        let left = left.inspect_err(|failure| {
            if !failure.is_definite() {
                self.release_unanswered.store(true, Ordering::Release);
            }
        })?;
        match left {
            Some(released) => Ok(released),
            // The one before was applied, and its answer lost.
            None if definite && self.release_unanswered.load(Ordering::Acquire) => Ok(Released::Released),
            None if definite => Ok(Released::NotHeld),
            None => Err(Failure::Refused(LockError::new(
                LockErrorKind::Backend,
                "an unanswered request for the lock may still be executed",
            ))),
        }
    }

    async fn send_release(&self) -> Result<Released, Failure> {
        let contended = self.is_contended();
        let foreign = self.participant().foreign();
        if !foreign.is_empty() {
            // Also this process's next acquisition minds it, for which none of its tasks may wait yet.
            let now = Instant::now();
            foreign.leave_open(self.id.key.stored(), now, self.leave_open(now));
        }
        let Some(unanswered) = &self.unanswered else {
            let mut line = self.connections.here().await?;
            // What was not answered before is asked in one step: in a batch it might be told to ask again.
            let again = self.release_unanswered.load(Ordering::Acquire);
            if !contended && !again && line.is_batch_due() {
                match self.release_in_batch(&line, Behind::Nothing).await {
                    Ok(true) => return Ok(Released::Released),
                    // What fails here fails again on the other way, which says why; what failed because the
                    // connection was given up goes over the next one.
                    Ok(false) | Err(Failure::Refused(_) | Failure::GivenUp(_)) => {
                        line = self.connections.here().await?;
                    }
                    Err(failure) => return Err(failure),
                }
            }
            let _alone = line.alone();
            return self.release_over(&line, true).await;
        };
        // Sent behind the unanswered request it is executed after it, also when the connection was given up.
        if !unanswered.on.connection().is_gone()
            && let Ok(released) = self.release_behind(&unanswered.on).await
        {
            return Ok(released);
        }
        let line = self.connections.here().await?;
        // Over another connection it may overtake the request, as long as that is executed at all.
        let definite = (unanswered.until + server_clock::ERROR).has_passed();
        self.release_over(&line, definite).await
    }

    async fn release_in_batch(&self, line: &Line, behind: Behind) -> Result<bool, Failure> {
        line.release(&self.id, behind).await.inspect_err(|failure| {
            if !failure.is_definite() {
                self.release_unanswered.store(true, Ordering::Release);
            }
        })
    }

    /// Behind what waits for the next round trip of a connection, too.
    async fn release_behind(&self, line: &Line) -> Result<Released, Failure> {
        // Its task may belong to a runtime that is blocked.
        let limit = 2 * self.connections.server().config().response_timeout;
        match tokio::time::timeout(limit, self.release_in_batch(line, Behind::Unanswered)).await {
            Ok(Ok(true)) => Ok(Released::Released),
            Ok(Ok(false)) => self.release_over(line, true).await,
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::timed_out(limit)),
        }
    }
}

impl Releasable for RedisLease {
    fn key(&self) -> &LockKey {
        &self.id.key
    }

    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(async move {
            match self.send_release().await {
                // The connection was of no use, perhaps for long: once more over a new one.
                Err(Failure::Disconnected(_) | Failure::GivenUp(_)) => {
                    self.send_release().await.map_err(Failure::into_error)
                }
                answer => answer.map_err(Failure::into_error),
            }
        })
    }
}

impl Lease for RedisLease {
    fn id(&self) -> &LeaseId {
        &self.id
    }

    fn leave_free(&self) -> Duration {
        self.leave_open(Instant::now())
    }

    fn is_contended(&self) -> bool {
        self.others_wait || self.participant().inbox().is_contended(&self.id)
    }
}
