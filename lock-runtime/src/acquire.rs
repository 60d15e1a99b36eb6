//! The way from wanting a lock to holding it: the queue of this process, then the store.

use std::{sync::Arc, time::Duration};

use crate::{
    LockError, LockErrorKind, LockGuard, LockKey,
    backend::{Acquire, Acquired, Grant, Mode, Progress, Wait},
    clock::{self, Instant},
    cohort::{Cohorts, Entry, Follower, Leader, Waited, Why, last_answer},
    hold::{Hold, Turn},
    options::LockOptions,
    scope,
    shared::{Reserved, Shared},
    underway::Counted,
    validity::backoff,
};

pub(crate) async fn acquire(
    shared: &Arc<Shared>,
    key: &LockKey,
    options: &LockOptions,
    wait: Wait,
) -> Result<LockGuard, LockError> {
    options.check(shared.backend.capabilities())?;
    if let Some(again) = scope::enter_again(shared, key, options) {
        return again;
    }
    // Counted before the look whether the manager is open, and until everything that is dropped on the way out is.
    let _asking = Counted::new(&shared.asking);
    let reserved = shared.reserve()?;
    // A task that locks and releases in a loop without ever waiting would keep the runtime from its other work.
    tokio::task::coop::consume_budget().await;
    let leader = loop {
        match Cohorts::enter(shared, key, options.terms(), wait != Wait::No)? {
            Entry::Busy(holder_remaining) => return Err(contended(Some(holder_remaining))),
            Entry::Alone => break None,
            Entry::Lead(leader) => break Some(leader),
            Entry::Follow(follower) => match follow(shared, follower, wait).await? {
                Waited::Called(turn) if shared.take(&turn, options.max_hold) => {
                    turn.hold_until(Instant::now() + options.hold_at_least);
                    return Ok(LockGuard::new(turn, reserved));
                }
                // Lost, or taken back, before this task ran: the way begins anew.
                Waited::Called(_) if wait.end().has_passed() => return Err(missed()),
                Waited::Called(_) => {}
                Waited::Lead { leader, pause } => {
                    clock::sleep_until(Instant::now() + pause).await;
                    break Some(leader);
                }
                Waited::TimedOut(why) => {
                    return Err(match why {
                        Why::Held { holder_remaining } => timeout(options, holder_remaining),
                        Why::Trouble(error) => error,
                        Why::Unanswered => no_answer(),
                    });
                }
            },
        }
    };
    ask_store(reserved, leader, key, options, wait).await
}

/// Waits in the queue of this process, unless the manager is shut down.
async fn follow(shared: &Shared, follower: Follower, wait: Wait) -> Result<Waited, LockError> {
    tokio::select! {
        biased;
        waited = follower.wait(wait.end()) => Ok(waited),
        error = shared.closed() => Err(error),
    }
}

/// Asks the store until it answers or the wait is over.
async fn ask_store(
    reserved: Reserved,
    leader: Option<Leader>,
    key: &LockKey,
    options: &LockOptions,
    wait: Wait,
) -> Result<LockGuard, LockError> {
    let shared = reserved.shared();
    let request = Acquire {
        key: key.clone(),
        mode: Mode::Exclusive,
        ttl: options.ttl,
        renews: options.auto_renew,
        wait,
        cleanup: shared.cleanup(),
        progress: Progress(leader.as_ref().map(|leader| leader.asker().clone())),
    };
    // One attempt ends when the store gives up; only the store knows how long an answer may take.
    let give_up = if wait == Wait::No { Instant::FAR_FUTURE } else { last_answer(wait.end()) };
    for attempt in 0.. {
        // First: a store that grants at once would be asked after the end.
        shared.check_open()?;
        let answer = tokio::select! {
            biased;
            answer = shared.backend.acquire(&request) => answer,
            error = shared.closed() => return Err(error),
            () = clock::sleep_until(give_up) => Err(no_answer()),
        };
        let error = match answer {
            Ok(Acquired::Granted(grant)) => match accept(shared, grant, options) {
                Some(turn) => {
                    if let Some(leader) = leader {
                        leader.granted(&turn);
                    }
                    shared.keeper.add(shared, &turn.hold);
                    tracing::trace!(%key, fencing_token = %turn.token, "lock acquired");
                    return Ok(LockGuard::new(turn, reserved));
                }
                None => too_late(),
            },
            Ok(Acquired::Busy { holder_remaining }) => {
                request.progress.heard();
                return Err(if wait == Wait::No {
                    contended(holder_remaining)
                } else {
                    timeout(options, holder_remaining)
                });
            }
            Err(error) => error,
        };
        if error.kind() == LockErrorKind::Backend {
            request.progress.trouble(&error);
        }
        let pause = backoff(attempt);
        let may_pass = error.kind() == LockErrorKind::Backend && error.is_retryable();
        if !may_pass || wait == Wait::No || wait.end().remaining() <= pause {
            return Err(error);
        }
        tracing::debug!(%key, %error, "the store failed, asking again");
        tokio::select! {
            () = clock::sleep_until(Instant::now() + pause) => {}
            error = shared.closed() => return Err(error),
        }
    }
    unreachable!("the loop ends by returning")
}

/// Makes a turn of a grant, unless it came too late to be of use; then it is given back.
fn accept(shared: &Arc<Shared>, grant: Grant, options: &LockOptions) -> Option<Arc<Turn>> {
    let now = Instant::now();
    let hold = Hold::new(grant.held, options.terms(), options.max_hold);
    if hold.remaining_unrenewed(now) < shared.least_validity(options.ttl.min(options.max_hold)) {
        shared.releaser.release(hold.taken(), hold.gone_by(now));
        return None;
    }
    let turn = Turn::first(hold, grant.token);
    turn.hold_until(now + options.hold_at_least);
    Some(turn)
}

fn contended(holder_remaining: Option<Duration>) -> LockError {
    LockError::new(LockErrorKind::Contended, "somebody else holds it").with_retry_after(holder_remaining)
}

fn timeout(options: &LockOptions, holder_remaining: Option<Duration>) -> LockError {
    let waited = match options.wait {
        crate::options::WaitFor::AtMost(length) => format!("{length:?}"),
        crate::options::WaitFor::Forever => "the wait".into(),
    };
    LockError::new(LockErrorKind::Timeout, format!("somebody else still held it after {waited}"))
        .with_retry_after(holder_remaining)
}

fn missed() -> LockError {
    LockError::new(
        LockErrorKind::Timeout,
        "it was passed on to this task, which did not run in time to take it, and the wait is over",
    )
}

fn no_answer() -> LockError {
    LockError::new(LockErrorKind::Backend, "the store did not answer within the wait")
}

fn too_late() -> LockError {
    LockError::new(
        LockErrorKind::Backend,
        "the store granted it, but the answer took so long that too little of the lease was left",
    )
}
