//! Why a lock was lost, for the log and for the holder's error.

use std::fmt;

use crate::{LockError, LockErrorKind, LockKey, backend::Released, log_limiter::LogLimiter};

/// Why a turn is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The turn has lasted for `max_hold`.
    MaxHold,
    /// The lease has ended, and was not to be renewed.
    TtlOver,
    /// Too little of the lease was left to be of use when the last of several locks was granted.
    TooLittleLeft,
    /// The deadline of the lease passed, and no renewal was sent, although one was due.
    NotAsked,
    /// The deadline of the lease passed, and the store answered no renewal.
    Unanswered,
    /// The deadline of the lease passed. A renewal had failed with this error, and none has succeeded since.
    Failed(String),
    /// The store says that the owner no longer has the lease.
    GivenAway,
    /// An operator has taken the lock away.
    Revoked,
    /// The deadline of the session passed.
    SessionUnconfirmed,
    /// The session has ended, and the store has not yet given a reason.
    SessionEnded,
    /// The text is a reason that the store has given, or the text states what the engine found wrong with the store.
    Reason(String),
}

impl Cause {
    /// Returns the error of a holder that has lost its lock.
    pub(crate) fn error(&self, key: &LockKey) -> LockError {
        let advice = match self {
            Self::MaxHold => "; make the section shorter or `max_hold` longer",
            Self::TtlOver | Self::TooLittleLeft => "",
            _ => "; check what was done since with the fencing token",
        };
        LockError::new(LockErrorKind::Lost, format!("lost: {self}{advice}")).with_key(key)
    }

    /// Logs the loss of a lock.
    pub(crate) fn log(&self, key: &LockKey) {
        static LOST: LogLimiter = LogLimiter::new();
        let why = self.to_string();
        LOST.log(
            &why,
            key,
            || tracing::warn!(%key, why, "lock lost"),
            |lost, key| {
                tracing::warn!(lost, key, "more locks lost for the same reason; the last one is named");
            },
        );
    }
}

/// The kind of thing that a release ends, which decides how the answer of the store is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseTarget {
    /// A hold on which its holder relied until the release. If the store no longer has the hold, the lock was lost.
    Hold,
    /// Remains of an attempt, of a lost hold, or of a hold whose release is repeated. The store may no longer have the
    /// remains.
    Remains,
}

impl ReleaseTarget {
    /// Logs the answer of the store.
    pub(crate) fn log(self, key: &LockKey, answer: Released) {
        match (answer, self) {
            (Released::Released, _) => tracing::debug!(%key, "released"),
            (Released::NotHeld, Self::Hold) => log_given_up(key),
            (Released::NotHeld, Self::Remains) => tracing::debug!(%key, "nothing was left to release"),
        }
    }
}

/// Logs that the store no longer had a lock at its release, although the holder relied on the lock until then.
pub(crate) fn log_given_up(key: &LockKey) {
    Cause::Reason("the store had given it up before it was released".into()).log(key);
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MaxHold => "`max_hold` is reached",
            Self::TtlOver => "its `ttl` is over and `auto_renew` is off",
            Self::TooLittleLeft => {
                "too little of its lease was left when the last of the locks was acquired"
            }
            Self::NotAsked => {
                "its deadline passed before a renewal was sent; was the process suspended, or its machine too busy?"
            }
            Self::Unanswered => "its deadline passed without an answer from the store",
            Self::Failed(error) => {
                return write!(f, "its deadline passed while its renewals failed: {error}");
            }
            Self::GivenAway => "the store says that it is no longer ours",
            Self::Revoked => "it was revoked by an operator",
            Self::SessionUnconfirmed => {
                "its deadline passed before the store confirmed that the session is alive"
            }
            Self::SessionEnded => "its session with the store has ended",
            Self::Reason(why) => why,
        })
    }
}
