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
    Failed,
    Unanswered,
}

#[cfg(all(test, feature = "metrics"))]
mod tests;
