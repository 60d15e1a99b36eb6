//! The mark of a period, which is set before the lock is acquired.
//!
//! In a store with leases, the mark is a lease of a reserved name that is neither renewed nor released. In a store with
//! session locks, the mark is an [entry](Marks). An attempt whose outcome is unknown may have set the mark; such a mark is
//! removed before the store is asked again, because it would look like that of another client.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use super::period::Period;
use crate::{
    LockError, LockErrorKind, LockKey, OwnerToken,
    backend::{
        Acquire, Acquired, Backend, BoxFuture, Cleanup, Held, LockId, Mark, Marked, Progress, Releasable,
        Released, ReleasesLater, Wait,
    },
    engine::{Engine, cohort::answer_deadline, request::Request},
    json::timestamp,
    sync::lock,
    time::{
        backoff::backoff,
        clock::{self, Instant},
    },
};

/// Lower bound on the time limit of a single attempt. The limit is the `ttl` of the lock, but a client with a short `ttl`
/// may have to connect first. (A store may bound a single attempt by the `ttl` that is asked for, which is far too long for
/// a mark.)
const SINGLE_ATTEMPT_AT_LEAST: Duration = Duration::from_secs(5);

/// How often the store is asked again if it shows no holder of the mark.
const MAX_REPEATS_IF_BUSY: u32 = 4;
/// Upper bound on the time for which an acquisition that has failed waits for the removal of its mark.
const REMOVAL: Duration = Duration::from_secs(1);

/// A mark that is set. It is removed in the background when it is dropped, unless the period is [used](Self::keep).
pub(super) struct PeriodMark {
    pub(super) period: Period,
    engine: Arc<Engine>,
    mark: Option<Arc<dyn Releasable>>,
    /// The moment from which the mark is of no use.
    ends: Instant,
    ttl: Duration,
}

impl PeriodMark {
    /// Leaves the mark in the store: the period is used.
    pub(super) fn keep(mut self) {
        self.mark = None;
    }

    /// Removes the mark, and waits for this for a bounded time: the process may end as soon as its caller knows that the
    /// lock was not acquired.
    pub(super) async fn remove(self) {
        let engine = Arc::clone(&self.engine);
        drop(self);
        tokio::select! {
            biased;
            () = engine.releaser.marks_removed() => {}
            () = clock::sleep_until(Instant::now() + REMOVAL) => {}
        }
    }
}

impl Drop for PeriodMark {
    fn drop(&mut self) {
        if let Some(mark) = self.mark.take() {
            self.engine.releaser.remove_mark(mark, Instant::now() + self.ttl, self.ends);
        }
    }
}

/// An attempt in doubt, and the moment by which what it left has ended.
type Attempt = (Arc<dyn Releasable>, Instant);

/// The attempts that may have set the mark.
struct Doubtful {
    engine: Arc<Engine>,
    ttl: Duration,
    /// `None` once the claim has ended.
    attempts: Mutex<Option<Vec<Attempt>>>,
}

impl Doubtful {
    fn remove_in_background(&self, attempt: Arc<dyn Releasable>, until: Instant) {
        self.engine.releaser.remove_mark(attempt, Instant::now() + self.ttl, until);
    }
}

impl ReleasesLater for Doubtful {
    fn release_later(self: Arc<Self>, attempt: Arc<dyn Releasable>, until: Instant) {
        if let Some(attempts) = &mut *lock(&self.attempts) {
            return attempts.push((attempt, until));
        }
        self.remove_in_background(attempt, until);
    }
}

/// A claim to a period. When the claim is dropped, attempts that are still in doubt are undone in the background.
struct Claim<'a> {
    engine: &'a Arc<Engine>,
    request: &'a Request,
    doubtful: Arc<Doubtful>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let attempts = lock(&self.doubtful.attempts).take();
        for (attempt, until) in attempts.into_iter().flatten() {
            self.doubtful.remove_in_background(attempt, until);
        }
    }
}

/// Marks the present period of `length`.
///
/// # Errors
/// [`AlreadyRun`](LockErrorKind::AlreadyRun) if the period is marked; the errors of the store.
///
/// # Cancel safety
/// If the future is dropped, the mark is removed in the background.
pub(super) async fn set(
    engine: &Arc<Engine>,
    request: &Request,
    length: Duration,
) -> Result<PeriodMark, LockError> {
    let doubtful = Doubtful {
        engine: Arc::clone(engine),
        ttl: request.options.ttl,
        attempts: Mutex::new(Some(Vec::new())),
    };
    let claim = Claim { engine, request, doubtful: Arc::new(doubtful) };
    let deadline = match request.wait {
        Wait::No => Instant::now() + request.options.ttl.max(SINGLE_ATTEMPT_AT_LEAST),
        wait => answer_deadline(wait.end()),
    };
    tokio::select! {
        biased;
        marked = claim.until_set(length) => marked,
        error = engine.closed() => Err(error),
        () = clock::sleep_until(deadline) => Err(unanswered()),
    }
}

impl Claim<'_> {
    async fn until_set(&self, length: Duration) -> Result<PeriodMark, LockError> {
        for attempt in 0.. {
            let error = match self.once(length).await {
                Err(error) if error.kind() == LockErrorKind::Backend => error,
                ended => return ended,
            };
            let (wait, pause) = (self.request.wait, backoff(attempt));
            if wait == Wait::No || !error.is_retryable() || wait.end().remaining() <= pause {
                return Err(error);
            }
            tracing::debug!(key = %self.request.lock.key, %error, "the period was not marked, asking again");
            clock::sleep_until(Instant::now() + pause).await;
            self.undo().await?;
        }
        unreachable!("the loop ends by returning")
    }

    /// Undoes the attempts that are in doubt.
    async fn undo(&self) -> Result<(), LockError> {
        for attempt in 0.. {
            let due = lock(&self.doubtful.attempts).as_ref().and_then(|attempts| attempts.first().cloned());
            let Some((due, until)) = due else { return Ok(()) };
            match due.release().await {
                Err(error) if !until.has_passed() => {
                    let pause = backoff(attempt);
                    if self.request.wait.end().remaining() <= pause {
                        return Err(error);
                    }
                    clock::sleep_until(Instant::now() + pause).await;
                }
                _ => {
                    // The attempts are only added to in the meantime.
                    let undone = lock(&self.doubtful.attempts).as_mut().map(|attempts| attempts.remove(0));
                    drop(undone);
                }
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// Asks the store once to mark the present period.
    async fn once(&self, length: Duration) -> Result<PeriodMark, LockError> {
        let Self { engine, request, doubtful } = self;
        let (began, now) = (Instant::now(), unix_time());
        let period = Period::of(now, length);
        let lasts = period.mark_lasts(now);
        let key = request.lock.key.mark(period.number, length);
        // The mark may be one that this process is removing, because its lock was not acquired. The removal may be confirmed
        // while the answer is under way.
        let is_removing = || engine.releaser.is_removing_mark(key.stored());
        let was_removing = is_removing();
        let Some(mark) = ask(engine, request, key.clone(), period, lasts, doubtful).await? else {
            return Err(if was_removing || is_removing() {
                LockError::backend(
                    "the store did not yet confirm that an earlier mark of this period, whose lock was not acquired, is removed",
                )
            } else {
                already_run(period, now)
            });
        };
        let answered = Instant::now();
        let marked = PeriodMark {
            period,
            engine: Arc::clone(engine),
            mark: Some(mark),
            ends: answered + lasts,
            ttl: request.options.ttl,
        };
        if period.is_in_time(now, answered.saturating_duration_since(began)) {
            return Ok(marked);
        }
        Err(LockError::backend(
            "the store marked the period, but the answer took so long that the mark is of no use",
        ))
    }
}

/// Asks the store for the mark. Returns `None` if another client has it.
async fn ask(
    engine: &Arc<Engine>,
    request: &Request,
    key: LockKey,
    period: Period,
    lasts: Duration,
    doubtful: &Arc<Doubtful>,
) -> Result<Option<Arc<dyn Releasable>>, LockError> {
    let cleanup = Cleanup(Arc::<Doubtful>::clone(doubtful));
    if engine.backend.marks().is_some() {
        let Period { number: period, length } = period;
        let mark = Mark { key, period, length, owner: OwnerToken::random(), lasts };
        return set_entry(Arc::clone(&engine.backend), mark, cleanup).await;
    }
    let LockId { mode, .. } = request.lock;
    let label = request.options.label;
    for attempt in 0.. {
        let (key, cleanup, progress) = (key.clone(), cleanup.clone(), Progress(None));
        let acquire =
            Acquire { key, mode, ttl: lasts, auto_renew: false, wait: Wait::No, label, cleanup, progress };
        match engine.backend.acquire(acquire).await? {
            Acquired::Granted(grant) => match grant.held {
                Held::Lease { lease, .. } => return Ok(Some(lease)),
                Held::Session { session, .. } => {
                    doubtful.remove_in_background(session, Instant::FAR_FUTURE);
                    return Err(LockError::new(
                        LockErrorKind::Unsupported,
                        "this store has session locks, and cannot mark a period (`Backend::marks`), so it has no `once_per`",
                    ));
                }
            },
            // Without a holder, several clients may have divided the nodes of a quorum among them, or the row was locked by
            // the claim of another one: if all of them gave up, the period would not be run.
            Acquired::Busy { holder: None, .. } if attempt < MAX_REPEATS_IF_BUSY => {
                clock::sleep_until(Instant::now() + backoff(attempt)).await;
            }
            Acquired::Busy { .. } => return Ok(None),
        }
    }
    unreachable!("the loop ends by returning")
}

/// Sets the mark in a store with session locks.
async fn set_entry(
    store: Arc<dyn Backend>,
    mark: Mark,
    cleanup: Cleanup,
) -> Result<Option<Arc<dyn Releasable>>, LockError> {
    let until = Instant::now() + mark.lasts;
    let entry = Arc::new(Entry { store, mark });
    let mut in_doubt = InDoubt { entry: Some(Arc::clone(&entry)), cleanup, until };
    let marks = entry.store.marks().expect("checked by the caller");
    let set = marks.set(&entry.mark).await;
    match &set {
        Err(error) if !error.is_permanent() => {}
        _ => in_doubt.disarm(),
    }
    drop(in_doubt);
    Ok(match set? {
        Marked::Set => Some(entry),
        Marked::Taken => None,
    })
}

/// A call that may set a mark. Unless it is disarmed, it is undone.
struct InDoubt {
    entry: Option<Arc<Entry>>,
    cleanup: Cleanup,
    until: Instant,
}

impl InDoubt {
    fn disarm(&mut self) {
        self.entry = None;
    }
}

impl Drop for InDoubt {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.cleanup.release_later(entry, self.until);
        }
    }
}

/// A mark in a store with session locks.
#[derive(Debug)]
struct Entry {
    store: Arc<dyn Backend>,
    mark: Mark,
}

impl Releasable for Entry {
    fn key(&self) -> &LockKey {
        &self.mark.key
    }

    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(async {
            if let Some(marks) = self.store.marks() {
                marks.remove(&self.mark).await?;
            }
            Ok(Released::NotHeld)
        })
    }
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn already_run(period: Period, now: Duration) -> LockError {
    let (length, beginning) = (period.length, timestamp(period.beginning()));
    let next = period.until_next(now);
    let message = format!(
        "it ran already in this period of {length:?}, which counts from {beginning}, or another start is about to run it"
    );
    LockError::new(LockErrorKind::AlreadyRun, message).with_retry_after(Some(next)).advising(next)
}

fn unanswered() -> LockError {
    LockError::backend("the store did not answer in time whether it marked the period")
}
