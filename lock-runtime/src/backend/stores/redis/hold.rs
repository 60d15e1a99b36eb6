//! A hold on the server, or an attempt that may have left a hold or a place there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    node::{self, Renewals, Renewed},
    queue::{self, Line, MustFollow, Participant},
    servers::{Again, Route, Servers},
};
use crate::{
    FencingToken, Label, LockError, LockKey,
    backend::{
        BoxFuture, HandOver, Lease, LeaseId, Releasable, Released,
        common::{cold::cold, inquiry::Inquiry, server_clock},
        kits::redis::{
            error::{Failure, Redirection},
            foreign::{FOREIGN_OPENING, USUAL_OPENING},
        },
    },
    time::clock::{self, Instant},
};

/// Minimum pause between two questions whether others wait, after a contention notice.
const PAUSE_AFTER_NOTICE: Duration = Duration::from_millis(100);
/// Pause between two questions whether others wait, while no contention notice comes: the notice may have been lost.
const PAUSE_WITHOUT_NOTICE: Duration = Duration::from_secs(5);

/// A token that no grant has.
pub(super) const NO_GRANT: FencingToken = FencingToken::from_micros(0);

#[derive(Debug)]
pub(super) struct RedisLease {
    pub(super) servers: Arc<Servers>,
    pub(super) id: LeaseId,
    /// The label of the acquisition, which is part of the owner's text.
    pub(super) label: Label,
    /// The unanswered request of an attempt, if any.
    pub(super) unanswered: Option<Unanswered>,
    /// Whether others were in the queue when the lock was granted, or may have been.
    pub(super) others_wait: bool,
    /// When the last request of the attempt was sent: no later than the grant, unless that request was a poll sent
    /// after the grant.
    pub(super) granted_at: Instant,
    /// The question whether others wait.
    pub(super) inquiry: Inquiry,
    /// Whether a release was sent and not answered; it may have been applied.
    pub(super) release_unanswered: AtomicBool,
}

/// An unanswered request, other than a poll, that may take the lock.
#[derive(Debug)]
pub(super) struct Unanswered {
    /// The connection over which the request was sent. Later requests over the same connection are executed after this
    /// request.
    pub(super) on: Arc<Line>,
    /// The limit of the request. The server no longer executes the request once `server_clock::ERROR` has passed since
    /// this time.
    pub(super) until: Instant,
}

impl RedisLease {
    fn participant(&self) -> &Participant {
        self.servers.participant()
    }

    fn route(&self) -> Route {
        self.servers.route(&self.id.key, Again::IfBroken)
    }

    /// Returns whether others wait in the queue, as far as known.
    fn is_contended(&self) -> bool {
        self.others_wait || self.participant().inbox().is_contended(&self.id)
    }

    /// Asks the server whether others wait in the queue; `None` without an answer.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn has_queue(&self) -> Option<bool> {
        let mut route = self.route();
        loop {
            let answer = match route.line().await {
                Ok(line) => queue::exists(line.connection(), &self.id.key).await,
                Err(failure) => Err(failure),
            };
            match answer {
                Ok(exists) => return Some(exists),
                Err(failure) => {
                    let pause = route.again_with_one_key_after(&failure)?;
                    clock::sleep_until(Instant::now() + pause).await;
                }
            }
        }
    }

    /// Returns how long a lock without a queue is to be left open to clients that do not queue.
    ///
    /// If others wait in the queue, the release script decides.
    fn leave_open(&self, now: Instant) -> Duration {
        let shared = !self.participant().foreign().remaining(self.id.key.stored(), now).is_zero();
        let opening = if shared { FOREIGN_OPENING } else { USUAL_OPENING };
        opening.due(self.granted_at, now)
    }

    /// Releases over `line`.
    ///
    /// `definite` states that no unanswered acquisition can be executed after a release over `line`. The answer "not
    /// yours" then means that this owner will not get the lock.
    async fn release_over(&self, line: &Line, definite: bool) -> Result<Released, Failure> {
        let foreign = self.participant().foreign();
        let remembered = if foreign.is_empty() {
            Duration::ZERO
        } else {
            foreign.remaining(self.id.key.stored(), Instant::now())
        };
        let left = queue::leave(line.connection(), line.process(), (&self.id, &self.label), remembered).await;
        let left = left.inspect_err(|failure| {
            if !failure.is_definite() {
                self.release_unanswered.store(true, Ordering::Release);
            }
        })?;
        match left {
            Some(released) => Ok(released),
            // An earlier release was applied, and its answer was lost.
            None if definite && self.release_unanswered.load(Ordering::Acquire) => Ok(Released::Released),
            None if definite => Ok(Released::NotHeld),
            None => Err(Failure::Refused(LockError::backend(
                "an unanswered request for the lock may still be executed",
            ))),
        }
    }

    async fn send_release(&self, route: &mut Route) -> Result<Released, Failure> {
        let contended = self.is_contended();
        let foreign = self.participant().foreign();
        if !foreign.is_empty() {
            // The opening to clients that do not queue is recorded here. An attempt that begins in this process during
            // the opening finds the record, and pauses or gives up instead of asking for the lock at once.
            let now = Instant::now();
            let opening = if contended { Duration::ZERO } else { self.leave_open(now) };
            foreign.leave_open(self.id.key.stored(), now, opening);
        }
        let Some(unanswered) = &self.unanswered else {
            let mut line = route.line().await?;
            // An unanswered release is repeated alone, because a batch might only answer that the release must be sent
            // alone.
            let again = self.release_unanswered.load(Ordering::Acquire);
            let call = line.batcher.begin(line.process().slot(&self.id.key));
            if !contended && !again && call.is_due {
                match self.release_in_batch(&line, MustFollow::Nothing).await {
                    Ok(true) => return Ok(Released::Released),
                    // A batch may be refused because of another release in the batch; a release alone gets its own
                    // answer. A release that failed because the connection was given up is sent over the next
                    // connection.
                    Ok(false) | Err(Failure::Refused(_) | Failure::GivenUp(_)) => line = route.line().await?,
                    Err(failure) => return Err(failure),
                }
            }
            let _alone = line.batcher.alone();
            return cold(self.release_over(&line, true)).await;
        };
        // A release that is sent behind the unanswered request is executed after that request. The connection may be
        // given up, i.e. closed to new calls, as long as it is not gone. After a failover, the request may have reached the
        // server that is the primary now as well, which must release what it was granted.
        let connection = unanswered.on.connection();
        if !connection.is_gone()
            && !connection.is_to_a_replaced_server()
            && let Ok(released) = cold(self.release_behind(&unanswered.on)).await
        {
            return Ok(released);
        }
        let line = route.line().await?;
        // Over another connection, the release may overtake the request for as long as the server may still execute the
        // request.
        let definite = (unanswered.until + server_clock::ERROR).has_passed();
        cold(self.release_over(&line, definite)).await
    }

    /// Ends the hold by a call that names no key but the holder's, so that the call succeeds while the keys of the lock are
    /// being moved to another server. Waiters, which ask again until the keys have been moved, find the lock free.
    async fn end_hold(&self, route: &mut Route) -> Result<Released, Failure> {
        let line = route.line().await?;
        let ended = LeaseId { ttl: Duration::ZERO, ..self.id.clone() };
        let answer = node::renew(line.connection(), &Renewals::of(std::iter::once(&ended))).await;
        let answer = answer.inspect_err(|failure| {
            if !failure.is_definite() {
                self.release_unanswered.store(true, Ordering::Release);
            }
        })?;
        match answer.first() {
            Some(Renewed::Yes) => Ok(Released::Released),
            Some(Renewed::Revoked) => Err(Failure::Refused(LockError::backend(
                "the lock was revoked, and is released once its hash slot was moved to another server",
            ))),
            // An earlier release was applied, and its answer was lost.
            _ if self.release_unanswered.load(Ordering::Acquire) => Ok(Released::Released),
            _ => Ok(Released::NotHeld),
        }
    }

    async fn release_in_batch(&self, line: &Line, must_follow: MustFollow) -> Result<bool, Failure> {
        line.release(&self.id, must_follow).await.inspect_err(|failure| {
            if !failure.is_definite() {
                self.release_unanswered.store(true, Ordering::Release);
            }
        })
    }

    /// Releases behind everything on `line`, including operations that still wait for its next round trip.
    async fn release_behind(&self, line: &Line) -> Result<Released, Failure> {
        // The time is limited, because the batch's task may belong to a blocked runtime.
        let limit = 2 * self.servers.config().response_timeout;
        match tokio::time::timeout(limit, self.release_in_batch(line, MustFollow::Unanswered)).await {
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
            let mut route = self.route();
            let mut is_over_one_key = false;
            let mut answer = self.send_release(&mut route).await;
            loop {
                let failure = match answer {
                    Ok(released) => return Ok(released),
                    Err(failure) => failure,
                };
                let is_moving =
                    matches!(failure, Failure::Redirected(Redirection::Ask { .. } | Redirection::Later, _));
                // The hold is ended over one key, without a pause, while the other keys are being moved.
                let over_one_key = is_moving && self.id.token != NO_GRANT && !is_over_one_key;
                let pause = match &failure {
                    // What an attempt may have left waits for its turn in the background: there may be many.
                    _ if is_moving && self.id.token == NO_GRANT => None,
                    _ if over_one_key => Some(Duration::ZERO),
                    failure if is_over_one_key => route.again_with_one_key_after(failure),
                    failure => route.again_after(failure),
                };
                is_over_one_key |= over_one_key;
                let Some(pause) = pause else { return Err(failure.into_error()) };
                if !pause.is_zero() {
                    clock::sleep_until(Instant::now() + pause).await;
                }
                answer = if is_over_one_key {
                    cold(self.end_hold(&mut route)).await
                } else {
                    self.send_release(&mut route).await
                };
            }
        })
    }
}

impl Lease for RedisLease {
    fn id(&self) -> &LeaseId {
        &self.id
    }

    fn may_hand_over(&self) -> HandOver {
        if self.is_contended() {
            HandOver::contended()
        } else {
            HandOver::uncontended().keep_off(self.leave_open(Instant::now()))
        }
    }

    /// A contention notice is only a hint, and the answer of the grant may be old by now. Therefore, both lead to a
    /// question to the server.
    fn wanted(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let notices = self.participant().inbox().watch_contention(&self.id);
            let (mut seen, mut hinted) = (notices.count(), self.is_contended());
            loop {
                let pause = if hinted { PAUSE_AFTER_NOTICE } else { PAUSE_WITHOUT_NOTICE };
                tokio::select! {
                    biased;
                    () = notices.reached(seen + 1) => (seen, hinted) = (notices.count(), true),
                    () = self.inquiry.due(pause) => {
                        if self.has_queue().await == Some(true) {
                            return;
                        }
                        // If a notice came during the question, it is counted in the next round.
                        hinted = false;
                    }
                }
            }
        })
    }
}
