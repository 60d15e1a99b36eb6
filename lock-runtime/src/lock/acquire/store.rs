//! The last step of an acquisition: asking the store and judging its answer.

use std::sync::Arc;

use crate::{
    LockError, LockErrorKind,
    backend::{Acquire, Acquired, BoxFuture, Grant, Lease, LockId, Permission, Progress, Wait},
    engine::{
        Engine,
        cohort::{Holder, Leader, answer_deadline},
        hold::{Hold, Turn},
        loss::ReleaseTarget,
        request::Request,
    },
    lock::acquire::errors::{contended, misnumbered, no_answer, timeout, too_late},
    time::{
        backoff::backoff,
        clock::{self, Instant},
    },
};

/// A pending request to the store, or the error after which the request has to be repeated.
pub(super) type StoreCall = Result<BoxFuture<'static, Result<Acquired, LockError>>, LockError>;

/// Asks the store once.
pub(super) fn ask(
    engine: &Arc<Engine>,
    leader: Option<&Leader>,
    request: &Request,
) -> BoxFuture<'static, Result<Acquired, LockError>> {
    let LockId { key, mode } = request.lock.clone();
    engine.backend.acquire(Acquire {
        key,
        mode,
        ttl: request.options.ttl,
        auto_renew: request.options.auto_renew,
        wait: request.wait,
        label: request.options.label,
        cleanup: engine.cleanup(),
        progress: Progress(leader.map(|leader| leader.reporter().for_store())),
    })
}

/// Returns the deadline for the answer of a store that is asked now.
pub(super) fn call_deadline(wait: Wait) -> Instant {
    // A single attempt ends when the store gives up, because only the store knows how long an answer may take.
    if wait == Wait::No { Instant::FAR_FUTURE } else { answer_deadline(wait.end()) }
}

/// Waits until `deadline` for the answer to `call`. If the store fails, asks the store again until it answers or the
/// wait is over.
pub(super) async fn ask_store(
    engine: &Arc<Engine>,
    leader: Option<&Leader>,
    mut call: StoreCall,
    deadline: Instant,
    request: &Request,
) -> Result<Accepted, LockError> {
    let Request { lock: LockId { key, .. }, options, wait } = request;
    for attempt in 0.. {
        let error = match call {
            Err(error) => error,
            Ok(call) => {
                let answer = tokio::select! {
                    biased;
                    answer = call => answer,
                    error = engine.closed() => return Err(error),
                    () = clock::sleep_until(deadline) => return Err(no_answer(engine, leader, options)),
                };
                match judge(engine, leader, request, answer) {
                    Judged::Over(accepted) => return accepted,
                    Judged::AskAgain(error) => error,
                }
            }
        };
        let pause = backoff(attempt);
        if wait.end().remaining() <= pause {
            return Err(error);
        }
        tracing::debug!(%key, %error, "the store failed, asking again");
        tokio::select! {
            biased;
            () = clock::sleep_until(Instant::now() + pause) => {}
            error = engine.closed() => return Err(error),
        }
        engine.check_open()?;
        call = Ok(ask(engine, leader, request));
    }
    unreachable!("the loop ends by returning")
}

/// A turn that the store has granted.
pub(super) struct Accepted {
    pub(super) turn: Arc<Turn>,
    /// When the answer was judged.
    pub(super) at: Instant,
}

/// The consequence of the store's answer for the acquisition.
pub(super) enum Judged {
    Over(Result<Accepted, LockError>),
    AskAgain(LockError),
}

pub(super) fn judge(
    engine: &Arc<Engine>,
    leader: Option<&Leader>,
    request: &Request,
    answer: Result<Acquired, LockError>,
) -> Judged {
    let Request { options, wait, .. } = request;
    let reporter = leader.map(Leader::reporter);
    let error = match answer {
        Ok(Acquired::Granted(grant)) => match accept(engine, grant, request) {
            Ok(accepted) => return Judged::Over(Ok(accepted)),
            Err(error) => error,
        },
        Ok(Acquired::Busy { holder_remaining, holder }) => {
            reporter.inspect(|reporter| reporter.contended());
            // The store does not know whether the holder renews.
            let holder = Holder { remaining: holder_remaining, is_final: false, seen: holder };
            let error = if *wait == Wait::No { contended(options, holder) } else { timeout(options, holder) };
            return Judged::Over(Err(error));
        }
        Err(error) => error,
    };
    let failed = error.kind() == LockErrorKind::Backend;
    if failed {
        reporter.inspect(|reporter| reporter.failed(&error));
    }
    if failed && error.is_retryable() && *wait != Wait::No {
        Judged::AskAgain(error)
    } else {
        Judged::Over(Err(error))
    }
}

/// Makes a turn from a grant. Releases the grant instead if it came too late to be useful, or if its token is unusable.
fn accept(engine: &Arc<Engine>, grant: Grant, request: &Request) -> Result<Accepted, LockError> {
    let (now, options) = (Instant::now(), &request.options);
    let (lock, terms) = (request.lock.clone(), request.terms());
    let hold = Hold::new(grant.held, lock, terms, now, options.max_hold, engine.origin());
    let is_short = !hold.has_enough_validity(now, options.max_hold);
    let may_hand_over = |lease: &Arc<dyn Lease>| lease.may_hand_over().permission != Permission::Refused;
    let is_misnumbered = !grant.token.begins_sequence() && hold.in_store.lease().is_some_and(may_hand_over);
    if is_short || is_misnumbered {
        engine.releaser.release(hold.in_store.releasable(), ReleaseTarget::Remains, hold.gone_by(now));
        return Err(if is_misnumbered { misnumbered() } else { too_late() });
    }
    let turn = Turn::first(hold, grant.token);
    turn.retain_until(now + options.hold_at_least);
    Ok(Accepted { turn, at: now })
}
