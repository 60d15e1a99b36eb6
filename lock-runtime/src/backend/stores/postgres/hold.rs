//! A hold in the table, or an attempt that may have left one there.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sqlx::Row;

use super::{
    flight::{Flight, Gone, Landed},
    next_holder::{CLAIM_WINDOW, Secret},
    release::{Due, ReleaseOutcome},
    shared::Shared,
};
use crate::{
    LockError, LockKey,
    backend::{
        BoxFuture, Grant, HandOver, Held, Lease, LeaseId, Releasable, Released,
        common::{contention::Contention, inquiry::Inquiry, server_clock},
        kits::postgres::{
            connections::{Lane, detached},
            error::{Failure, backend, not_understood},
            notices::{HEAD_START, NOTICE_PERIOD},
            statement::{Arg, micros},
        },
    },
    background,
    time::clock::{self, Instant},
};

/// Minimum length of a hold that is released with `hand_over.sql` although no other client was known to wait at the
/// grant. Compared with such a hold, the extra cost of that statement is small.
const MIN_HOLD_FOR_HAND_OVER: Duration = Duration::from_millis(2);
/// Pause before the second attempt to release a lock whose row is locked; it doubles with each attempt.
const WHILE_LOCKED: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct PostgresLease {
    pub(super) shared: Arc<Shared>,
    pub(super) id: LeaseId,
    /// The secret whose hash is the owner.
    secret: Secret,
    /// The request for this lease.
    flight: Flight,
    contention: Contention,
    inquiry: Inquiry,
    /// Whether the row may name this owner as the next holder.
    may_be_next: bool,
    /// Whether a release may have been executed without a known answer.
    release_unanswered: Arc<AtomicBool>,
    /// Whether a transaction depends on this holder.
    checked_in: AtomicBool,
    /// Set if this lease is left from a dropped attempt.
    abandoned: OnceLock<Gone>,
    /// Whether this lease is recorded in the [`revocations`](Shared::revocations).
    is_recorded: bool,
}

impl PostgresLease {
    /// Creates a lease that was granted.
    pub(super) fn of_grant(
        shared: &Arc<Shared>,
        id: LeaseId,
        secret: Secret,
        flight: &Flight,
        contention: Contention,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            id,
            secret,
            flight: flight.clone(),
            contention,
            inquiry: Inquiry::since(contention.answered_at),
            may_be_next: false,
            release_unanswered: Arc::default(),
            checked_in: AtomicBool::new(false),
            abandoned: OnceLock::new(),
            is_recorded: false,
        }
    }

    /// Returns the grant of this lease.
    ///
    /// A lease that is not renewed ends by itself, so its holder is not notified of a revocation.
    pub(super) fn into_grant(mut self, valid_until: Instant, auto_renew: bool) -> Grant {
        if auto_renew {
            self.shared.revocations.add(&self.id);
            self.is_recorded = true;
        }
        Grant::new(self.id.token, Held::lease(Arc::new(self), valid_until))
    }

    /// Creates a lease for what an attempt may leave in the row: a hold, or the entry that names the attempt's owner as
    /// the next holder.
    pub(super) fn of_attempt(
        shared: &Arc<Shared>,
        id: LeaseId,
        secret: Secret,
        flight: &Flight,
        may_be_next: bool,
    ) -> Self {
        let now = Instant::now();
        let contention = Contention { asked_at: now, answered_at: now, others_wait: false };
        let mut lease = Self::of_grant(shared, id, secret, flight, contention);
        lease.may_be_next = may_be_next;
        lease
    }

    /// Returns the moment from which an abandoned lease can no longer be granted.
    pub(super) fn is_granted_by(&self) -> Instant {
        let now = Instant::now();
        let until = match self.flight.landed() {
            Some(Landed::Unknown(until) | Landed::Granted(Some(until))) => until,
            Some(Landed::Granted(None) | Landed::NotGranted) => now,
            None => now + self.shared.connections.config.response_timeout + server_clock::ERROR,
        };
        // As long as the row names this owner as the next holder, a release may grant the lock to this owner.
        if self.may_be_next { until + CLAIM_WINDOW.max(NOTICE_PERIOD) } else { until }
    }

    /// Gives the request up. Until this lease is released and dropped, a new attempt of this process for the lock waits
    /// for that release, for up to 250 ms.
    pub(super) fn abandon(&self) {
        self.flight.give_up();
        self.abandoned.get_or_init(|| self.shared.abandoned.add(self.id.key.stored()));
    }

    /// Excludes the lock from hand-overs in this process from now on: a transaction depends on this holder.
    pub(super) fn keep_from_others(&self) {
        self.checked_in.store(true, Ordering::SeqCst);
    }

    /// Returns the secret for the next holder; `None` if a transaction that has checked in with the lock may still be
    /// open.
    ///
    /// A release is requested only when no guard in this process can use the hold any more, so no transaction checks in
    /// with the lock after this call.
    fn shown(&self) -> Option<Secret> {
        (!self.checked_in.load(Ordering::SeqCst)).then_some(self.secret)
    }

    /// Returns whether others wait, or may have begun to wait since the grant.
    fn others_may_wait(&self) -> bool {
        self.contention.others_wait || (self.contention.answered_at + MIN_HOLD_FOR_HAND_OVER).has_passed()
    }
}

impl Drop for PostgresLease {
    fn drop(&mut self) {
        if self.is_recorded {
            self.shared.revocations.remove(&self.id);
        }
        if let Some(gone) = self.abandoned.get() {
            self.shared.abandoned.remove(self.id.key.stored(), gone);
        }
    }
}

async fn release(
    shared: Arc<Shared>,
    id: LeaseId,
    secret: Option<Secret>,
    flight: Flight,
    may_be_next: bool,
    others_wait: bool,
    release_unanswered: Arc<AtomicBool>,
) -> Result<Released, LockError> {
    let (unanswered_until, lingers) = match flight.end().await {
        Landed::NotGranted if !may_be_next => return Ok(Released::NotHeld),
        // The row may name this owner as the next holder, or a release may since have granted the lock to this owner.
        Landed::NotGranted => (None, None),
        Landed::Granted(lingers) => (None, lingers),
        Landed::Unknown(until) => (Some(until), Some(until)),
    };
    let end = Instant::now() + shared.connections.config.response_timeout;
    let mut pause = WHILE_LOCKED;
    loop {
        // The request may be executed, or its commit may end, after the release that is sent now. The limit of the
        // request bounds the time at which the statement is executed, but not the duration of the statement's commit:
        // for example, a commit takes long while a synchronous replica is away.
        let may_follow =
            unanswered_until.is_some_and(|until| !until.has_passed() || shared.connections.has_overdue());
        let again = release_unanswered.swap(true, Ordering::SeqCst);
        // An earlier release may still be executed, and may end the hold without a grant. Therefore, a repeated release
        // shows no secret.
        let due = Due { id: id.clone(), secret: secret.filter(|_| !again) };
        let answer = if background::handle().is_here() {
            shared.releases.together(due).await
        } else {
            shared.releases.alone(due, others_wait).await
        };
        let (left, again) = match answer {
            Ok((left, repeated)) => (left, again || repeated),
            Err(failure) => {
                if !matches!(failure, Failure::Unknown(_)) && !again {
                    release_unanswered.store(false, Ordering::SeqCst);
                }
                return Err(failure.into());
            }
        };
        let released = match left {
            ReleaseOutcome::Ended | ReleaseOutcome::NotOurs if may_follow => {
                return Err(backend("an unanswered request for the lock may still be executed"));
            }
            ReleaseOutcome::Held => Some(Released::Released),
            // The row still named this owner, but the lease had ended: the holder could no longer rely on the lock.
            ReleaseOutcome::Ended => Some(Released::NotHeld),
            // An earlier release was executed, and its answer was lost.
            ReleaseOutcome::NotOurs if again => Some(Released::Released),
            ReleaseOutcome::NotOurs => {
                release_unanswered.store(false, Ordering::SeqCst);
                Some(Released::NotHeld)
            }
            ReleaseOutcome::Locked => None,
        };
        if let Some(released) = released {
            if let Some(until) = lingers.filter(|until| !until.has_passed()) {
                background::handle().spawn(release_again(shared, id, until));
            }
            return Ok(released);
        }
        if !again {
            release_unanswered.store(false, Ordering::SeqCst);
        }
        if end.has_passed() {
            return Err(backend(
                "the row of the lock is locked: a transaction that has checked in with the lock is still open, and the \
                 lock is released once it ends",
            ));
        }
        clock::sleep_until((Instant::now() + pause).min(end)).await;
        pause *= 2;
    }
}

/// Releases once more when a statement that was sent twice can no longer be executed: the first copy may have taken the
/// lock after its release. If each attempt fails, the lease ends by itself.
async fn release_again(shared: Arc<Shared>, id: LeaseId, until: Instant) {
    let mut at = until;
    while at < until + id.ttl {
        clock::sleep_until(at).await;
        let answer = shared.releases.together(Due { id: id.clone(), secret: None }).await;
        if answer.is_ok_and(|(outcome, _)| outcome != ReleaseOutcome::Locked) {
            return;
        }
        at = Instant::now() + Duration::from_millis(250);
    }
}

/// Asks whether other clients wait for the lock.
async fn is_wanted(shared: Arc<Shared>, id: LeaseId) -> Result<bool, LockError> {
    let args = |_| vec![Arg::Text(id.key.stored().into()), Arg::Owner(Some(id.owner)), micros(NOTICE_PERIOD)];
    let answer = shared.connections.run(Lane::Here, &shared.statements.wanted, args).await?;
    // Without a row, the lock is lost, and the next renewal will find out.
    answer.rows.first().map_or(Ok(false), |row| row.try_get("wanted")).map_err(not_understood)
}

impl Releasable for PostgresLease {
    fn key(&self) -> &LockKey {
        &self.id.key
    }

    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>> {
        let (shared, id) = (Arc::clone(&self.shared), self.id.clone());
        let (flight, again) = (self.flight.clone(), Arc::clone(&self.release_unanswered));
        let (secret, may_be_next, others_wait) = (self.shown(), self.may_be_next, self.others_may_wait());
        Box::pin(async move {
            detached(release(shared, id, secret, flight, may_be_next, others_wait, again)).await
        })
    }
}

impl Lease for PostgresLease {
    fn id(&self) -> &LeaseId {
        &self.id
    }

    fn may_hand_over(&self) -> HandOver {
        let answer = if self.checked_in.load(Ordering::SeqCst) {
            HandOver::refused()
        } else if self.contention.is_likely() {
            HandOver::contended()
        } else {
            HandOver::uncontended()
        };
        if self.contention.others_wait {
            answer.keep_off(self.contention.head_start(HEAD_START))
        } else {
            answer
        }
    }

    fn wanted(&self) -> BoxFuture<'_, ()> {
        let ask = || async { detached(is_wanted(Arc::clone(&self.shared), self.id.clone())).await.ok() };
        Box::pin(async move { self.inquiry.until_yes(ask).await })
    }
}
