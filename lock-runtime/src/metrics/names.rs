//! The names, kinds and labels of the metrics.

/// The upper bounds of the buckets for all histograms, in seconds.
pub const BUCKETS: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// A distribution, with the [`BUCKETS`].
    Histogram,
}

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name.
    pub name: &'static str,
    /// The kind.
    pub kind: Kind,
    /// The names of the labels.
    pub labels: &'static [&'static str],
    /// The meaning, in one sentence.
    pub help: &'static str,
}

/// All metrics of this library.
pub const ALL: [Metric; 10] =
    [ACQUIRE, HOLD, WAITERS, HELD, IN_DOUBT, HANDOVERS, RENEWALS, VALIDITY_LEFT, LATE, CONNECTION_UP];

pub(super) const ACQUIRE: Metric = Metric {
    name: "lock_acquire_duration_seconds",
    kind: Kind::Histogram,
    labels: &["store", "class", "mode", "outcome"],
    help: "The time from the call until the lock was acquired or the acquisition ended without it",
};
pub(super) const HOLD: Metric = Metric {
    name: "lock_hold_duration_seconds",
    kind: Kind::Histogram,
    labels: &["store", "class", "mode", "end"],
    help: "The time from the acquisition of a lock until its guard was released or dropped",
};
pub(super) const WAITERS: Metric = Metric {
    name: "lock_waiters",
    kind: Kind::Gauge,
    labels: &["store", "class"],
    help: "The acquisitions of this process that wait for a lock or for the store's answer",
};
pub(super) const HELD: Metric = Metric {
    name: "lock_held",
    kind: Kind::Gauge,
    labels: &["store", "class"],
    help: "The guards in this process that hold a lock",
};
pub(super) const IN_DOUBT: Metric = Metric {
    name: "lock_in_doubt",
    kind: Kind::Gauge,
    labels: &["store", "class"],
    help: "The releases that have failed so far and are repeated: the store may still keep these locks",
};
pub(super) const HANDOVERS: Metric = Metric {
    name: "lock_handovers_total",
    kind: Kind::Counter,
    labels: &["store", "class", "where"],
    help: "The acquisitions that got the lock from another holder, in this process or in the store",
};
pub(super) const RENEWALS: Metric = Metric {
    name: "lock_renewals_total",
    kind: Kind::Counter,
    labels: &["store", "class", "outcome"],
    help: "The renewals of leases",
};
pub(super) const VALIDITY_LEFT: Metric = Metric {
    name: "lock_validity_left_seconds",
    kind: Kind::Histogram,
    labels: &["store", "class"],
    help: "The validity that a lease had left when it was renewed: how near the lock came to its loss",
};
pub(super) const LATE: Metric = Metric {
    name: "lock_late_seconds",
    kind: Kind::Histogram,
    labels: &["store", "class"],
    help: "How long after the deadline of its lock a guard was released or dropped: each is a possible overlap",
};

pub(super) const CONNECTION_UP: Metric = Metric {
    name: "lock_connection_up",
    kind: Kind::Gauge,
    labels: &["store", "server"],
    help: "1 while the server of a store can be reached, 0 while it cannot, not a number (`NaN`) once it no longer belongs to the \
           store, as a server that has left a Redis Cluster",
};
