//! The errors of an acquisition, with their texts.

use std::time::Duration;

use crate::{
    LockError, LockErrorKind,
    engine::{
        Engine,
        cohort::{Holder, Leader, TimeoutCause},
    },
    options::{LockOptions, WaitFor},
};

pub(super) fn contended(options: &LockOptions, holder: Holder) -> LockError {
    is_held(LockErrorKind::Contended, "it is already held".into(), options, holder)
}

pub(super) fn timeout(options: &LockOptions, holder: Holder) -> LockError {
    let waited = match options.wait {
        WaitFor::AtMost(length) => format!("{length:?}"),
        WaitFor::Forever => "the wait".into(),
    };
    is_held(LockErrorKind::Timeout, format!("it was still held after {waited}"), options, holder)
}

fn is_held(kind: LockErrorKind, mut message: String, options: &LockOptions, holder: Holder) -> LockError {
    if holder.remaining == Some(Duration::MAX) {
        message += ", by a client that set no expiry: it will not end by itself";
        return LockError::new(kind, message).advising(options.retry_after).with_holder(holder.seen);
    }
    // While a lease is renewed, its remaining time does not tell how long the holder will keep the lock.
    let advice = holder.remaining.filter(|_| holder.is_final).unwrap_or(options.retry_after);
    LockError::new(kind, message).with_retry_after(holder.remaining).advising(advice).with_holder(holder.seen)
}

pub(super) fn missed() -> LockError {
    LockError::new(
        LockErrorKind::Timeout,
        "it was handed over to this task, which was not polled in time to take it, and the wait is over",
    )
}

pub(crate) fn not_polled() -> LockError {
    LockError::new(
        LockErrorKind::Timeout,
        "the future of this acquisition was not polled in time and lost its place, and the wait is over",
    )
}

/// Returns the error for a store that has not answered by the end of the wait.
pub(super) fn no_answer(engine: &Engine, leader: Option<&Leader>, options: &LockOptions) -> LockError {
    let Some(reporter) = leader.map(Leader::reporter) else { return unanswered() };
    let error = match reporter.timeout_cause() {
        TimeoutCause::Unanswered { .. } => unanswered(),
        cause => return out_of_time(engine, options, cause),
    };
    reporter.failed(&error);
    error
}

/// Returns the error for a wait that ran out.
pub(super) fn out_of_time(engine: &Engine, options: &LockOptions, cause: TimeoutCause) -> LockError {
    match cause {
        TimeoutCause::Held(holder) => timeout(options, holder),
        TimeoutCause::Failed(error) => error,
        TimeoutCause::Unanswered { leader } if engine.waiting.is_blind(leader) => LockError::new(
            LockErrorKind::Timeout,
            "another task of this process asked the store for it, and was not polled in time to see the answer",
        ),
        TimeoutCause::Unanswered { .. } => unanswered(),
    }
}

fn unanswered() -> LockError {
    LockError::new(LockErrorKind::Backend, "the store did not answer within the wait")
}

pub(super) fn too_late() -> LockError {
    LockError::new(
        LockErrorKind::Backend,
        "the store granted it, but the answer took so long that too little of the lease was left",
    )
}

pub(super) fn misnumbered() -> LockError {
    LockError::new(
        LockErrorKind::Unsupported,
        "the store granted a lease with a fencing token that leaves no numbers for hand-overs: the tokens of leases \
         are made by `FencingToken::from_micros`",
    )
}
