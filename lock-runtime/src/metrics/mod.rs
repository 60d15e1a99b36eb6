//! The library's metrics, for the recorder that the program installs with the crate [`metrics`]: their names, labels and
//! buckets. The page [operation](crate::docs::operation#metrics) explains them.
//!
//! [`metrics`]: https://docs.rs/metrics

#[cfg(feature = "metrics")]
mod names;
#[cfg_attr(not(feature = "metrics"), path = "off.rs")]
mod on;

#[cfg(feature = "metrics")]
pub use self::names::{ALL, BUCKETS, Kind, Metric};
pub(crate) use self::on::{Acquisition, Counted, Holding, Meter, Metrics, connection};
use crate::LockErrorKind;

/// How an acquisition ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Acquired,
    Contended,
    Timeout,
    AlreadyRun,
    Failed,
    Refused,
    #[cfg(feature = "metrics")]
    Cancelled,
}

impl Outcome {
    #[cfg(feature = "metrics")]
    const ALL: [Self; 7] = [
        Self::Acquired,
        Self::Contended,
        Self::Timeout,
        Self::AlreadyRun,
        Self::Failed,
        Self::Refused,
        Self::Cancelled,
    ];

    /// Returns the value of the label.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Contended => "contended",
            Self::Timeout => "timeout",
            Self::AlreadyRun => "already_run",
            Self::Failed => "failed",
            Self::Refused => "refused",
            #[cfg(feature = "metrics")]
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the outcome of an acquisition that ended with an error.
    pub(crate) fn of(why: LockErrorKind) -> Self {
        match why {
            LockErrorKind::Contended => Self::Contended,
            LockErrorKind::Timeout => Self::Timeout,
            LockErrorKind::AlreadyRun => Self::AlreadyRun,
            LockErrorKind::Backend | LockErrorKind::Lost => Self::Failed,
            LockErrorKind::WouldDeadlock
            | LockErrorKind::NotHeld
            | LockErrorKind::InvalidKey
            | LockErrorKind::InvalidOptions
            | LockErrorKind::Unsupported
            | LockErrorKind::Overloaded
            | LockErrorKind::ShutDown
            | LockErrorKind::NoManager => Self::Refused,
        }
    }
}

/// How a holder's use of a lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldEnd {
    Released,
    Dropped,
    Lost,
    MaxHold,
}

/// Where a lock came from, for which another holder had to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandedOver {
    InProcess,
    ByStore,
}

/// How a renewal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Yes,
    /// The store no longer has the lease, or its answer came too late.
    Lost,
    /// An operator has revoked the lease.
    Revoked,
    Failed,
    Unanswered,
}

#[cfg(all(test, feature = "metrics"))]
mod tests;
