//! The cases, by group. A case names no store.

mod attribute;
mod attribute_options;
mod attribute_outcomes;
mod attribute_under_faults;
mod cancellation;
mod clocks;
mod cohort;
mod exclusion;
mod fencing;
mod hold_at_least;
mod inspect;
mod interop;
mod killed;
mod leader;
pub mod leader_torture;
mod lease;
mod limits;
mod loss;
mod loss_reasons;
mod minority;
mod multi_lock;
mod once_per;
mod once_per_under_faults;
mod one_connection;
mod outage;
mod ownership;
mod paused;
mod reconnect;
mod reentrance;
mod revoke;
mod runtimes;
pub mod self_test;
mod shutdown;
mod spoilt_key;
mod status;
pub mod torture;
mod unnotified;
mod unpolled;
mod wait;
mod wanted;

use std::time::Duration;

use lock_runtime::LockGuard;

use crate::case::{Case, Need};

pub fn all() -> Vec<Case> {
    [
        exclusion::cases(),
        wait::cases(),
        lease::cases(),
        hold_at_least::cases(),
        once_per::cases(),
        once_per_under_faults::cases(),
        fencing::cases(),
        clocks::cases(),
        attribute::cases(),
        cancellation::cases(),
        unpolled::cases(),
        ownership::cases(),
        reentrance::cases(),
        multi_lock::cases(),
        limits::cases(),
        one_connection::cases(),
        cohort::cases(),
        wanted::cases(),
        inspect::cases(),
        revoke::cases(),
        attribute_options::cases(),
        attribute_outcomes::cases(),
        runtimes::cases(),
        leader::cases(),
        killed::cases(),
        paused::cases(),
        outage::cases(),
        status::cases(),
        loss::cases(),
        minority::cases(),
        loss_reasons::cases(),
        reconnect::cases(),
        unnotified::cases(),
        shutdown::cases(),
        spoilt_key::cases(),
        interop::cases(),
        attribute_under_faults::cases(),
        leader_torture::cases(),
        torture::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The time that a busy machine may add to any duration.
pub const SLACK: Duration = Duration::from_millis(1500);

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A hold ends by itself when its `ttl` is over, however short that is, and no session keeps it.
pub const LEASES: Need = Need::Can(|can| can.session_timeout().is_none());

/// Long enough that a case in which it runs out has failed.
pub const LONG: Duration = Duration::from_secs(30);

/// Leaves a hold to its lease, like a process that ends silently. Its renewals go on unless it has none.
pub fn forget(guard: LockGuard) {
    // Never dropped, and never released.
    let _ = std::mem::ManuallyDrop::new(guard);
}
