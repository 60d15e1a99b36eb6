//! Attempts to acquire a lock: a request, and the wait until the next request is worthwhile.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use sqlx::Row;

use super::{
    flight::{Flight, InFlight, Landed},
    hold::PostgresLease,
    next_holder::{CLAIM_WINDOW, Place, Pushed, Secret},
    operate::Described,
    shared::Shared,
};
use crate::{
    FencingToken, LockError, OwnerToken,
    backend::{
        Acquire, Acquired, Grant, LeaseId,
        common::{
            contention::Contention,
            place_proof::{PlaceProof, is_usable},
            server_clock, signature,
            waiting::{self, Waiter, until_granted},
        },
        kits::postgres::{
            connections::{Answer, Lane, detached},
            error::{Failure, backend, not_understood},
            notices::{NOTICE_PERIOD, Watch},
            statement::{Arg, micros},
            sweep,
            table::sha256,
            uuid::Uuid,
        },
    },
    sync::lock,
    time::{backoff::between, clock::Instant, deadline::valid_until},
};

/// Bounds of the random pause after an answer that does not say how long the holder's lease still lasts. Before use,
/// the pause is doubled once for each consecutive answer of this kind, so the first pause takes 4 to 16 ms. Such an
/// answer means that the lock's row is about to change, that a transaction which has checked in with the lock is still
/// open, or that the lease has no end.
const PAUSE_IF_LOCKED: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(8)];
/// Upper bound on the doublings of `PAUSE_IF_LOCKED`.
const MOST_DOUBLINGS: u32 = 3;
/// Leases with a shorter `ttl` get a connection for renewals at once: their first renewal is due before a slow server
/// has accepted a new connection.
const CONNECT_EARLY_BELOW: Duration = Duration::from_secs(15);
/// Upper bound on the repetitions, in one wait, of requests that reached the server after their limit and therefore did
/// nothing, as after a jump of the server's clock.
const MAX_LATE_REPEATS: u32 = 3;

/// The expected state of a lock, which decides the first statement of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedState {
    Free,
    Held,
}

/// The outcome of one request.
enum Outcome {
    Granted(Grant),
    /// The lock is held. `remaining` is the time that the holder's lease still lasts, if that time is known. `place` is
    /// present if the answer proves that the row names the caller as the next holder.
    Held {
        remaining: Option<Duration>,
        place: Option<Place>,
        holder: Option<Described>,
    },
    /// By the server's clock, the limit of the request had passed, and the request did nothing.
    Late,
}

pub(super) async fn acquire(shared: &Arc<Shared>, request: &Acquire) -> Result<Acquired, LockError> {
    shared.notices.asked();
    // A dropped attempt of this process may hold the lock until its release in the background, for which this call
    // waits up to 250 ms.
    shared.abandoned.settled(request.key.stored()).await;
    let refused_by = Mutex::default();
    let acquired = until_granted(request, Requests::new(shared, request, &refused_by)).await?;
    let refused_by = lock(&refused_by).take();
    Ok(match (acquired, refused_by) {
        (Acquired::Busy { .. }, Some(holder)) => Acquired::busy_with(Described::shown(holder)),
        (acquired, _) => acquired,
    })
}

/// The requests of one waiter.
struct Requests<'a> {
    claim: Claim<'a>,
    /// The holder that the last answer has named, if the last answer was a refusal.
    refused_by: &'a Mutex<Option<Described>>,
    expected: ExpectedState,
    /// Number of requests that reached the server after their limit.
    late: u32,
    /// Number of consecutive answers that do not say how long the holder's lease still lasts, counted up to
    /// `MOST_DOUBLINGS`.
    locked: u32,
}

impl<'a> Requests<'a> {
    fn new(shared: &'a Arc<Shared>, request: &'a Acquire, refused_by: &'a Mutex<Option<Described>>) -> Self {
        let claim = Claim::new(shared, request, signature::of(request.label).into());
        Self { claim, refused_by, expected: ExpectedState::Free, late: 0, locked: 0 }
    }
}

impl Waiter for Requests<'_> {
    type Subscription = Watch;

    async fn ask(&mut self, watch: Option<&mut Watch>) -> Result<waiting::Answer, LockError> {
        let (shared, request) = (self.claim.shared, self.claim.request);
        let extra = match &watch {
            None => ExtraDemands::default(),
            Some(watch) if watch.is_notified() => {
                ExtraDemands { notice: NOTICE_PERIOD, lease: request.ttl.min(CLAIM_WINDOW) }
            }
            Some(_) => ExtraDemands { notice: NOTICE_PERIOD, lease: Duration::ZERO },
        };
        if request.auto_renew {
            shared.connections.can_renew().await?;
        }
        let remaining = match self.claim.ask(self.expected, extra).await? {
            Outcome::Granted(grant) => return Ok(waiting::Answer::Granted(grant)),
            Outcome::Late if self.late < MAX_LATE_REPEATS => {
                self.late += 1;
                return Ok(waiting::Answer::Undecided { pause: Duration::ZERO });
            }
            Outcome::Late => {
                return Err(backend("PostgreSQL did not execute the request in time, or its clock jumps"));
            }
            Outcome::Held { remaining, holder, .. } => {
                *lock(self.refused_by) = holder;
                remaining
            }
        };
        self.expected = ExpectedState::Held;
        let Some(watch) = watch else {
            return Ok(waiting::Answer::Held { remaining, pause: Duration::ZERO });
        };
        let pause = if let Some(remaining) = remaining {
            self.locked = 0;
            between(watch.pause()).min(remaining + between([Duration::ZERO, Duration::from_millis(1)]))
        } else {
            self.locked = MOST_DOUBLINGS.min(self.locked + 1);
            between(PAUSE_IF_LOCKED) * (1 << self.locked)
        };
        Ok(waiting::Answer::Held { remaining, pause })
    }

    /// Subscribes in this process. The next request asks the server for notifications.
    fn subscribe(&self) -> Watch {
        let Claim { shared, request, .. } = &self.claim;
        Watch::begin(&shared.notices, sha256(request.key.stored()).into())
    }

    async fn notified(&mut self, watch: &Watch, _before: u64) -> Option<Grant> {
        let text = watch.grant();
        if text.is_none() {
            self.expected = ExpectedState::Free;
        }
        self.claim.granted(&text?)
    }
}

/// The notifications and the grant that a request asks for if the lock is held.
#[derive(Clone, Copy, Debug, Default)]
struct ExtraDemands {
    /// Time for which the waiter is to be notified of a release; zero if the waiter is not to be notified.
    notice: Duration,
    /// Length of the lease that the holder's release is to grant to this waiter; zero if the release is to grant none.
    lease: Duration,
}

/// A random `owner`, under which the waiter asks for the lock, and what this owner may have left in the lock's row. The
/// claim lasts from before the first request is sent until a grant is returned.
///
/// The row may name the owner as the holder or as the next holder. If the claim is dropped before a grant is returned,
/// or the outcome of a request is unknown, the owner is removed from the row in the background.
struct Claim<'a> {
    shared: &'a Arc<Shared>,
    request: &'a Acquire,
    secret: Secret,
    /// The hash of the secret.
    owner: OwnerToken,
    /// What this acquisition states of itself.
    signature: Arc<str>,
    /// The owner's place as the next holder, once an answer has proved the place.
    place: Option<Place>,
    /// The last request, and whether the row may name the owner as the next holder; `None` while the claim has left
    /// nothing in the row, and once its grant was returned.
    open: Option<(Flight, bool)>,
}

impl<'a> Claim<'a> {
    fn new(shared: &'a Arc<Shared>, request: &'a Acquire, signature: Arc<str>) -> Self {
        let secret = Secret::random();
        Self { shared, request, secret, owner: secret.owner(), signature, place: None, open: None }
    }

    /// Sends a request for the lock. The statement runs in a task of its own, and goes on if the caller is dropped.
    async fn ask(&mut self, expected: ExpectedState, extra: ExtraDemands) -> Result<Outcome, LockError> {
        let (shared, request) = (self.shared, self.request);
        let flight = Flight::default();
        let in_flight =
            InFlight::new(flight.clone(), shared.connections.config.response_timeout + server_clock::ERROR);
        let id = request.lease_id(self.owner, FencingToken::from_micros(0));
        let is_next = self.place.is_some();
        self.open = Some((flight.clone(), is_next || !extra.lease.is_zero()));
        // If the row names this owner as the next holder, the statement that takes the lock has to remove this entry.
        // Only `acquire.sql` removes the entry; `take.sql` does not.
        let expected = if is_next { ExpectedState::Held } else { expected };
        let known = self.place.map(|place| place.holder);
        let question = Question {
            id,
            secret: self.secret,
            signature: Arc::clone(&self.signature),
            auto_renew: request.auto_renew,
            known,
        };
        let asked = detached(ask(Arc::clone(shared), question, expected, extra, in_flight)).await;
        // No await follows, so the claim cannot be dropped before it has recorded the outcome.
        match (flight.landed(), &asked) {
            (Some(Landed::NotGranted), asked) => {
                if let Ok(Outcome::Held { place: Some(place), .. }) = asked {
                    self.place = Some(*place);
                }
                if self.place.is_none() {
                    self.open = None;
                }
            }
            (Some(Landed::Granted(_)), Ok(_)) => {
                self.open = None;
                if request.auto_renew && request.ttl < CONNECT_EARLY_BELOW {
                    shared.connections.prepare_for_renewals();
                }
            }
            // The release in the background ends every hold of this owner, so the next request needs another owner.
            _ => {
                let next = Self::new(shared, request, Arc::clone(&self.signature));
                drop(std::mem::replace(self, next));
            }
        }
        asked
    }

    /// Returns the grant that a notification announces, if the grant is proved and valid for long enough. Otherwise,
    /// the next request finds the grant.
    fn granted(&mut self, text: &str) -> Option<Grant> {
        let now = Instant::now();
        let us = self.shared.connections.clock.at(now);
        let pushed: Pushed = text.parse().ok()?;
        let valid_until = self.place?.judge(pushed, us)?;
        if !is_usable(self.request, valid_until) {
            return None;
        }
        self.open = None;
        self.shared.connections.prepare_for_renewals();
        // The notification does not show whether other clients wait, so the code assumes that other clients wait. If
        // the assumption is wrong, this process needlessly ends its hand-overs 5 ms after the grant, and needlessly
        // pauses after the release before it asks for the lock again (see `Contention::head_start`).
        let contention = Contention { asked_at: now, answered_at: now, others_wait: true };
        let id = self.request.lease_id(self.owner, FencingToken::from_micros(pushed.version));
        let flight = Flight::ended(Landed::Granted(None));
        let lease = PostgresLease::of_grant(self.shared, id, self.secret, &flight, contention);
        Some(lease.into_grant(valid_until, self.request.auto_renew))
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some((flight, may_be_next)) = self.open.take() {
            let id = self.request.lease_id(self.owner, FencingToken::from_micros(0));
            let lease = PostgresLease::of_attempt(self.shared, id, self.secret, &flight, may_be_next);
            lease.abandon();
            let lease = Arc::new(lease);
            let until = lease.is_granted_by() + lease.id.ttl;
            self.request.cleanup.release_later(lease, until);
        }
    }
}

/// Who asks for which lock.
struct Question {
    id: LeaseId,
    secret: Secret,
    signature: Arc<str>,
    auto_renew: bool,
    /// The holder that the row named when the caller's place was last proved; `None` without a proved place.
    known: Option<OwnerToken>,
}

async fn ask(
    shared: Arc<Shared>,
    question: Question,
    expected: ExpectedState,
    extra: ExtraDemands,
    flight: InFlight,
) -> Result<Outcome, LockError> {
    let Question { id, secret, signature, auto_renew, known } = question;
    let Shared { connections, statements, .. } = &*shared;
    let mut limit = 0;
    let mut began = None;
    let mut args = |sent| {
        began.get_or_insert(sent);
        // A grant after the limit would have no holder: the caller has given up by then.
        limit = connections.clock.at(sent + connections.config.response_timeout);
        if flight.is_given_up() {
            limit = 0;
        }
        vec![
            Arg::Text(id.key.stored().into()),
            Arg::Owner(Some(id.owner)),
            micros(id.ttl),
            Arg::Number(i64::try_from(limit).unwrap_or(i64::MAX)),
            Arg::Text((*signature).into()),
        ]
    };
    let taken = match expected {
        ExpectedState::Free => Some(connections.run(Lane::Here, &statements.take, &mut args).await),
        ExpectedState::Held => None,
    };
    // A statement that was sent twice may be executed twice, and the copy that was sent first may be executed last.
    let mut repeated = matches!(&taken, Some(Ok(answer)) if answer.repeated);
    let not_granted = |repeated, flight: &InFlight| {
        flight.lands(if repeated { Landed::Unknown(flight.until()) } else { Landed::NotGranted });
    };
    let asked = match taken {
        Some(Ok(answer)) if !answer.rows.is_empty() => Ok(answer),
        Some(Err(failure)) => Err(failure),
        Some(Ok(_)) | None => {
            let further = [micros(extra.notice), micros(extra.lease), Arg::Owner(known)];
            let args = |sent| [args(sent), further.to_vec()].concat();
            connections.run(Lane::Here, &statements.acquire, args).await
        }
    };
    let answer = match asked {
        Ok(answer) => answer,
        Err(Failure::NotExecuted(error) | Failure::Refused(error)) => {
            not_granted(repeated, &flight);
            return Err(error);
        }
        // Another client is about to create the row, and to hold the lock.
        Err(Failure::Locked(_)) => {
            not_granted(repeated, &flight);
            return Ok(Outcome::Held { remaining: None, place: None, holder: None });
        }
        Err(Failure::Unknown(error)) => {
            flight.lands(Landed::Unknown(flight.until()));
            return Err(error);
        }
    };
    repeated |= answer.repeated;
    let now = Instant::now();
    let read = Read::of(&answer, extra).map_err(not_understood)?;
    let Some(version) = read.version else {
        not_granted(repeated, &flight);
        if limit < read.us && limit > 0 {
            connections.clock.replace(now, read.us);
            return Ok(Outcome::Late);
        }
        connections.clock.learn(answer.sent, now, read.us);
        // Only a request that was sent once proves a place: it has locked the row after `answer.sent`.
        let place = read.place.filter(|_| !repeated);
        return Ok(Outcome::Held { remaining: read.remaining, place, holder: read.holder });
    };
    flight.lands(Landed::Granted(repeated.then(|| flight.until())));
    connections.clock.learn(answer.sent, now, read.us);
    if read.is_new && shared.sweeper.grown() {
        tokio::spawn(sweep_page(Arc::clone(&shared)));
    }
    // The lease counts from the first statement, although the lease may have begun with the last statement.
    let asked_at = began.unwrap_or(answer.sent);
    let contention = Contention { asked_at, answered_at: now, others_wait: read.others_wait };
    let id = LeaseId { token: FencingToken::from_micros(version), ..id };
    let valid_until = valid_until(asked_at, id.ttl);
    let lease = PostgresLease::of_grant(&shared, id, secret, &flight.flight, contention);
    Ok(Outcome::Granted(lease.into_grant(valid_until, auto_renew)))
}

/// Looks at the next page of the table, and removes the rows of locks that have long been unused. A row that the
/// server refuses to remove does not keep other rows in the table.
async fn sweep_page(shared: Arc<Shared>) {
    let Shared { connections, sweeper, .. } = &*shared;
    let page = connections.run(Lane::Here, &sweeper.look, |_| sweeper.page()).await;
    let Ok(page) = page else { return };
    let old = sweeper.old(&page.rows);
    let send = |names| async move {
        connections.run(Lane::Here, &sweeper.remove, |_| sweep::removal(names)).await.map(drop)
    };
    // The next sweep finds the rows that are left.
    let _ = sweep::remove(&old, send).await;
}

/// The columns of the answer.
struct Read {
    /// The server's time, us.
    us: u64,
    version: Option<u64>,
    others_wait: bool,
    is_new: bool,
    /// The caller's place as the next holder, if the answer proves one.
    place: Option<Place>,
    remaining: Option<Duration>,
    /// The holder, if the row names one.
    holder: Option<Described>,
}

impl Read {
    fn of(answer: &Answer, extra: ExtraDemands) -> Result<Self, sqlx::Error> {
        let row = answer.rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let positive = |number: i64| u64::try_from(number).unwrap_or_default();
        let number = |column| Ok::<_, sqlx::Error>(row.try_get::<Option<i64>, _>(column)?.map(positive));
        let mut read = Self {
            us: positive(row.try_get("us")?),
            version: number("version")?,
            others_wait: row.try_get("wanted")?,
            is_new: row.try_get("is_new")?,
            place: None,
            remaining: None,
            holder: None,
        };
        // Only `acquire.sql` has these columns; `take.sql` returns no row without a grant.
        if read.version.is_none() {
            read.remaining = number("remaining")?.filter(|left| *left > 0).map(Duration::from_micros);
            if let (Some(signature), Some(version)) = (row.try_get("signature")?, number("held_version")?) {
                let is_revoked = row.try_get("is_revoked")?;
                let remaining = read.remaining;
                read.holder = remaining.map(|_| Described { signature, version, remaining, is_revoked });
            }
            let holder = row.try_get::<Option<String>, _>("holder")?;
            let holder = holder.and_then(|holder| holder.parse::<Uuid>().ok());
            if let (Some(seen), Some(sure), Some(Uuid(holder))) = (number("seen")?, number("sure")?, holder) {
                let sure = extra.lease.min(Duration::from_micros(sure));
                let proof = PlaceProof { sent: answer.sent, last: seen };
                read.place = Some(Place { proof, holder: OwnerToken::of(holder), sure });
            }
        }
        Ok(read)
    }
}
