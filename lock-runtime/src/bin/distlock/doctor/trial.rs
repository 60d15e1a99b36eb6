//! Tries whether the locks of a store exclude each other: two clients, and a lock that no other program uses.

use std::{
    fmt,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::{Duration, Instant},
};

use lock_runtime::{
    FencingToken, LockError, LockErrorKind, LockGuard, LockManager,
    backend::{Finding, FindingCode},
};
use tokio::time::sleep;

/// The longest `ttl` of the trial, and the longest hold of a session's lock: a trial should not take long.
const LONGEST: Duration = Duration::from_secs(3);
/// Upper bound on the wait of a hand-over. A client that is not notified asks within a second or two.
const LONGEST_HAND_OVER: Duration = Duration::from_secs(10);
/// Pause between two looks at the deadline of the lock.
const LOOK: Duration = Duration::from_millis(10);
/// How long the next client waits before the lock is released.
const BEFORE_RELEASE: Duration = Duration::from_millis(200);

/// A step of the trial, and what its success proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    Acquired,
    Excluded,
    Protected,
    Renewed,
    Kept,
    HandedOver,
    Released,
}

impl Proof {
    /// Returns what the step tries, behind "could not".
    pub(super) const fn aim(self) -> &'static str {
        match self {
            Self::Acquired => "acquire a lock",
            Self::Excluded => "ask for the lock with a second client",
            Self::Protected => "ask for a release by another client",
            Self::Renewed => "renew a lock before its deadline",
            Self::Kept => "keep a lock",
            Self::HandedOver => "hand a lock over to a waiting client",
            Self::Released => "release a lock",
        }
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Acquired => "a lock was acquired",
            Self::Excluded => "a second client was refused",
            Self::Protected => "a release by another client was refused",
            Self::Renewed => "the lock was renewed, and still excluded the second client",
            Self::Kept => "the lock was kept, and still excluded the second client",
            Self::HandedOver => "the lock was handed over to the waiting client, with a larger fencing token",
            Self::Released => "the lock was released",
        })
    }
}

/// The outcome of the trial: what it has proved, and what ended it early.
pub(super) struct Trial {
    pub(super) proofs: Vec<Proof>,
    pub(super) finding: Option<Finding>,
}

pub(super) async fn run(ours: &LockManager, theirs: &LockManager, ttl: Duration) -> Trial {
    let mut proofs = Vec::new();
    let finding = tried(ours, theirs, ttl.min(LONGEST), &mut proofs).await.err();
    Trial { proofs, finding }
}

fn exclusion(message: impl Into<String>) -> Finding {
    let remedy = "do not use this store for locks until the reason is found; see what its other clients do";
    Finding::danger(FindingCode::Exclusion, message, remedy)
}

async fn tried(
    ours: &LockManager,
    theirs: &LockManager,
    ttl: Duration,
    proofs: &mut Vec<Proof>,
) -> Result<(), Finding> {
    // The standard library takes the keys of its hashers from the randomness of the operating system.
    let key = format!("distlock-doctor:{:016x}", RandomState::new().build_hasher().finish());
    // Shorter ones are refused in a store with sessions.
    let of_lock = ours.capabilities().session_timeout().unwrap_or(ttl);
    let lock = |locks: &LockManager, wait| locks.lock(&key).label("doctor").wait(wait).ttl(of_lock);

    let first = match lock(ours, Duration::ZERO).acquire().await {
        Ok(guard) => guard,
        Err(error) if is_held(&error) => {
            return Err(exclusion(format!("`{key}`, a lock of a new name, is held by another client")));
        }
        Err(error) => return Err(failed(Proof::Acquired, &error)),
    };
    proofs.push(Proof::Acquired);

    let refused = async |guard: &LockGuard, when: &str| {
        let deadline = Instant::now() + guard.remaining();
        match lock(theirs, Duration::ZERO).acquire().await {
            // A lock that is lost by its deadline may be granted again.
            Ok(_) if !guard.is_valid() => lost(guard, deadline),
            Ok(_) => {
                Err(exclusion(format!("{when}, a second client was granted the lock that the first one had")))
            }
            Err(error) if is_held(&error) => lost(guard, deadline),
            Err(error) => Err(failed(Proof::Excluded, &error)),
        }
    };
    refused(&first, "after the grant").await?;
    proofs.push(Proof::Excluded);

    // The token is that of no grant in the holder's process, whose next tokens are close to the first one.
    let foreign = FencingToken::from_number(first.fencing_token().get() / 2);
    match theirs.revoke_by_force(&key, foreign).await {
        Ok(false) => {
            refused(&first, "after a release by another client").await?;
            proofs.push(Proof::Protected);
        }
        Ok(true) => return Err(exclusion("a client without the holder's fencing token could free the lock")),
        // The store may not be able to do that, or the user may not.
        Err(error) if !error.is_retryable() => {}
        Err(error) => return Err(failed(Proof::Protected, &error)),
    }

    renewed(&first, ttl).await?;
    refused(&first, "after a renewal").await?;
    // A session lasts longer than the trial.
    proofs.push(if of_lock > ttl { Proof::Kept } else { Proof::Renewed });

    handed_over(first, lock(theirs, LONGEST_HAND_OVER).acquire(), proofs).await
}

/// Holds the lock until it was to be renewed more than once.
async fn renewed(guard: &LockGuard, ttl: Duration) -> Result<(), Finding> {
    let end = Instant::now() + ttl.mul_f64(1.2);
    let mut deadline = Instant::now() + guard.remaining();
    while Instant::now() < end {
        tokio::select! {
            () = guard.lost() => return lost(guard, deadline),
            () = sleep(LOOK) => {}
        }
        // Of a lock that is lost, nothing remains.
        if guard.is_valid() {
            deadline = Instant::now() + guard.remaining();
        }
    }
    lost(guard, deadline)
}

/// Returns the finding if the lock is lost: at its deadline it is protected, and before its deadline it was not.
fn lost(guard: &LockGuard, deadline: Instant) -> Result<(), Finding> {
    let early = deadline.saturating_duration_since(Instant::now());
    match guard.ensure_valid() {
        Err(error) if early.is_zero() => Err(too_slow(&error)),
        Err(error) => Err(exclusion(format!("the lock was lost {early:.1?} before its deadline: {error}"))),
        Ok(()) => Ok(()),
    }
}

fn too_slow(error: &LockError) -> Finding {
    let Finding { code, message, .. } = failed(Proof::Renewed, error);
    let remedy = "find out why the server or this machine is slow, or use a longer `ttl`";
    Finding::danger(code, message, remedy)
}

async fn handed_over(
    first: LockGuard,
    waiting: impl Future<Output = Result<LockGuard, LockError>>,
    proofs: &mut Vec<Proof>,
) -> Result<(), Finding> {
    let token = first.fencing_token();
    let held = first.held();
    let release = async {
        sleep(BEFORE_RELEASE).await;
        let was_valid = held.is_valid();
        (was_valid, first.release().await)
    };
    let next = async {
        let next = waiting.await;
        (next, held.is_valid())
    };
    let ((was_valid, released), (next, first_is_valid)) = tokio::join!(release, next);
    let next = match next {
        Ok(_) if first_is_valid => {
            return Err(exclusion(
                "the waiting client was granted the lock before the first one released it",
            ));
        }
        Ok(guard) => guard,
        Err(error) if is_held(&error) => {
            return Err(exclusion(format!(
                "the lock was released, and the waiting client did not get it within {LONGEST_HAND_OVER:?}"
            )));
        }
        Err(error) => return Err(failed(Proof::HandedOver, &error)),
    };
    match released {
        Err(error) if was_valid && error.kind() == LockErrorKind::Lost => {
            return Err(exclusion(format!("the lock was lost before its release: {error}")));
        }
        Err(error) => return Err(failed(Proof::Released, &error)),
        Ok(()) => {}
    }
    if next.fencing_token() <= token {
        return Err(exclusion(format!(
            "the fencing token of the next holder, {}, is not larger than the token before, {token}",
            next.fencing_token()
        )));
    }
    proofs.push(Proof::HandedOver);
    next.release().await.map_err(|error| failed(Proof::Released, &error))?;
    proofs.push(Proof::Released);
    Ok(())
}

/// Returns the finding for a step of the trial that failed.
fn failed(step: Proof, error: &LockError) -> Finding {
    let code = match error.kind() {
        LockErrorKind::Lost => FindingCode::Slow,
        _ => error.fault().unwrap_or(FindingCode::Unreachable),
    };
    Finding::danger(code, format!("the trial could not {}: {error}", step.aim()), "")
}

fn is_held(error: &LockError) -> bool {
    matches!(error.kind(), LockErrorKind::Contended | LockErrorKind::Timeout)
}
