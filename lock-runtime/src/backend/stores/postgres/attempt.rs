//! Attempts to acquire a lock: ask, and wait until it is worth asking again.

use std::{sync::Arc, time::Duration};

use sqlx::Row;

use super::{
    connections::{Answer, Lane, detached},
    error::{Failure, not_understood},
    flight::{Flight, InFlight, Landed},
    hold::PostgresLease,
    notices::Watch,
    shared::Shared,
    statement::{Arg, micros, owner},
    sweep,
};
use crate::{
    FencingToken, LockError, LockErrorKind, OwnerToken,
    backend::{
        Acquire, Acquired, Cleanup, Grant, Held, LeaseId, Mode, Wait,
        common::{contention::Contention, server_clock},
    },
    time::{backoff::between, clock::Instant, deadline::valid_until},
};

/// How long a waiter is notified of releases after it has asked for that. It asks again when half of it is over.
const WANTED: Duration = Duration::from_millis(1_500);
/// Pause of a waiter that is notified of releases: a notification may be lost with its connection.
const PAUSE: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(350)];
/// Pause of a waiter that is not notified.
const PAUSE_OF_POLLS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(100)];
/// Pause after an answer that does not tell how long the lock is held: its row is about to change, or a transaction that
/// its last holder has checked in with is open.
const PAUSE_IF_LOCKED: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(8)];
/// Upper bound on doublings of this pause.
const MOST_DOUBLINGS: u32 = 3;
/// A lease that is shorter is renewed before a slow server has accepted a new connection.
const SHORT: Duration = Duration::from_secs(15);
/// How often a request is repeated because the server's clock had jumped.
const LATE: u32 = 3;

/// What is expected of a lock; if it is wrong, another statement is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Likely {
    Free,
    Held,
}

/// The outcome of one request.
enum Outcome {
    Granted(Grant),
    /// How long the holder's lease lasts, if that is known.
    Held(Option<Duration>),
    /// It was too late when it was executed, by the server's clock.
    Late,
}

pub(super) async fn acquire(shared: &Arc<Shared>, request: &Acquire) -> Result<Acquired, LockError> {
    match request.mode {
        Mode::Exclusive => {}
    }
    shared.notices.asked();
    // An attempt of this process that was dropped may still hold it for a moment.
    shared.abandoned.settled(request.key.stored()).await;
    let (mut watch, mut late, mut locked) = (None::<Watch>, 0, 0);
    let mut likely = Likely::Free;
    loop {
        let before = watch.as_ref().map_or(0, Watch::count);
        let wanted = if watch.is_some() { WANTED } else { Duration::ZERO };
        let remaining = match Claim::ask(shared, request, likely, wanted).await? {
            Outcome::Granted(grant) => return Ok(Acquired::Granted(grant)),
            Outcome::Late if late < LATE => {
                late += 1;
                continue;
            }
            Outcome::Late => {
                let message = "PostgreSQL did not execute the request in time, or its clock jumps";
                return Err(LockError::new(LockErrorKind::Backend, message));
            }
            Outcome::Held(remaining) => remaining,
        };
        let (now, end) = (Instant::now(), request.wait.end());
        if request.wait == Wait::No || now >= end {
            return Ok(Acquired::busy(remaining));
        }
        request.progress.contended();
        let Some(watch) = &watch else {
            // Asks again at once, to be notified, and because the lock may have been released before.
            watch = Some(Watch::begin(&shared.notices, &request.key));
            likely = Likely::Held;
            continue;
        };
        let pause = if let Some(remaining) = remaining {
            locked = 0;
            let pause = if watch.is_notified() { PAUSE } else { PAUSE_OF_POLLS };
            between(pause).min(remaining + between([Duration::ZERO, Duration::from_millis(1)]))
        } else {
            locked = MOST_DOUBLINGS.min(locked + 1);
            between(PAUSE_IF_LOCKED) * (1 << locked)
        };
        tokio::select! {
            biased;
            () = watch.reached(before + 1) => likely = Likely::Free,
            () = request.progress.sleep_until((now + pause).min(end)) => likely = Likely::Held,
        }
    }
}

/// One request for the lock, from before it is sent until its grant is returned.
///
/// If it is dropped in between, or its outcome is not known, what it may have left is removed in the background.
struct Claim {
    /// `None` once it has left nothing, or its grant was returned.
    lease: Option<Arc<PostgresLease>>,
    cleanup: Cleanup,
}

impl Claim {
    /// Asks for the lock. The statement runs in a task of its own: it goes on if the caller is dropped.
    async fn ask(
        shared: &Arc<Shared>,
        request: &Acquire,
        likely: Likely,
        wanted: Duration,
    ) -> Result<Outcome, LockError> {
        let is_renewed_soon = request.auto_renew && request.ttl < SHORT;
        let flight = Flight::default();
        let in_flight =
            InFlight::new(flight.clone(), shared.connections.config().response_timeout + server_clock::ERROR);
        // Another one for each request: what is left of the last one is released by its owner.
        let owner = OwnerToken::random();
        let id = request.lease_id(owner, FencingToken::from_micros(0));
        let lease = PostgresLease::of(shared, id.clone(), &flight, None);
        let mut claim = Self { lease: Some(Arc::new(lease)), cleanup: request.cleanup.clone() };
        let asked =
            detached(ask(Arc::clone(shared), id.clone(), likely, wanted, is_renewed_soon, in_flight)).await;
        // From here on there is no await.
        if let (Some(Landed::NotGranted), _) | (Some(Landed::Granted(_)), Ok(_)) = (flight.landed(), &asked) {
            claim.lease = None;
        }
        Ok(match asked? {
            Asked::Granted { version, contention } => {
                let token = FencingToken::from_micros(version);
                let id = request.lease_id(owner, token);
                let valid_until = valid_until(contention.asked_at, id.ttl);
                let lease = PostgresLease::of(shared, id, &flight, Some(contention));
                Outcome::Granted(Grant::new(token, Held::lease(Arc::new(lease), valid_until)))
            }
            Asked::Held(remaining) => Outcome::Held(remaining),
            Asked::Late => Outcome::Late,
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.abandon();
            let shared = &lease.shared;
            let until = Instant::now() + shared.connections.longest() + server_clock::ERROR + lease.id.ttl;
            self.cleanup.release_later(lease, until);
        }
    }
}

/// What an answer says.
enum Asked {
    Granted { version: u64, contention: Contention },
    Held(Option<Duration>),
    Late,
}

async fn ask(
    shared: Arc<Shared>,
    id: LeaseId,
    likely: Likely,
    wanted: Duration,
    is_renewed_soon: bool,
    flight: InFlight,
) -> Result<Asked, LockError> {
    let Shared { connections, statements, .. } = &*shared;
    let mut limit = 0;
    let mut began = None;
    let mut args = |sent| {
        began.get_or_insert(sent);
        // Executed later, it would be a grant without a holder.
        limit = connections.clock().at(sent + connections.config().response_timeout);
        vec![
            Arg::Text(id.key.stored().to_owned()),
            owner(id.owner),
            micros(id.ttl),
            Arg::Number(i64::try_from(limit).unwrap_or(i64::MAX)),
            Arg::Text(shared.label.clone()),
        ]
    };
    let taken = match likely {
        Likely::Free => Some(connections.run(Lane::Here, &statements.take, &mut args).await),
        Likely::Held => None,
    };
    // A statement that was sent twice may be executed twice, the first one last.
    let mut repeated = matches!(&taken, Some(Ok(answer)) if answer.repeated);
    let not_granted = |repeated, flight: &InFlight| {
        flight.lands(if repeated { Landed::Unknown(flight.until()) } else { Landed::NotGranted });
    };
    let asked = match taken {
        Some(Ok(answer)) if !answer.rows.is_empty() => Ok(answer),
        Some(Err(failure)) => Err(failure),
        Some(Ok(_)) | None => {
            let args = |sent| [args(sent), vec![micros(wanted)]].concat();
            connections.run(Lane::Here, &statements.acquire, args).await
        }
    };
    let answer = match asked {
        Ok(answer) => answer,
        Err(Failure::NotExecuted(error)) => {
            not_granted(repeated, &flight);
            return Err(error);
        }
        Err(Failure::Unknown(error)) => {
            flight.lands(Landed::Unknown(flight.until()));
            return Err(error);
        }
    };
    repeated |= answer.repeated;
    let now = Instant::now();
    let read = Read::of(&answer).map_err(not_understood)?;
    let Some(version) = read.version else {
        not_granted(repeated, &flight);
        if limit < read.us {
            connections.clock().replace(now, read.us);
            return Ok(Asked::Late);
        }
        connections.clock().learn(answer.sent, now, read.us);
        return Ok(Asked::Held(read.remaining));
    };
    flight.lands(Landed::Granted(repeated.then(|| flight.until())));
    connections.clock().learn(answer.sent, now, read.us);
    if is_renewed_soon {
        connections.prepare_for_renewals();
    }
    sweep::granted(&shared);
    // The lease counts from the first statement, although it may have begun with the last one.
    let asked_at = began.unwrap_or(answer.sent);
    let contention = Contention { asked_at, answered_at: now, others_wait: read.others_wait };
    Ok(Asked::Granted { version, contention })
}

/// The columns of the answer.
struct Read {
    /// The server's time, us.
    us: u64,
    version: Option<u64>,
    others_wait: bool,
    remaining: Option<Duration>,
}

impl Read {
    fn of(answer: &Answer) -> Result<Self, sqlx::Error> {
        let row = answer.rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let positive = |number: i64| u64::try_from(number).unwrap_or_default();
        let remaining = row.try_get::<Option<i64>, _>("remaining")?;
        Ok(Self {
            us: positive(row.try_get("us")?),
            version: row.try_get::<Option<i64>, _>("version")?.map(positive),
            others_wait: row.try_get("wanted")?,
            remaining: remaining.filter(|left| *left > 0).map(|left| Duration::from_micros(positive(left))),
        })
    }
}
