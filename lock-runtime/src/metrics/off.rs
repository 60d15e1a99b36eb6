//! The interface of `on.rs` without the feature `metrics`: nothing is recorded.

use std::time::Duration;

use super::{HandedOver, HoldEnd, Renewed};
use crate::{LockErrorKind, time::clock::Instant};

#[derive(Debug)]
pub(crate) struct Metrics;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter;

#[derive(Debug)]
pub(crate) struct Acquisition;

#[derive(Debug)]
pub(crate) struct Holding;

#[derive(Debug)]
pub(crate) struct Counted;

impl Metrics {
    pub(crate) fn of(_store: &'static str) -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "the interface of `on.rs`")]
    pub(crate) fn meter(&self, _class: &'static str, _mode: &'static str) -> Meter {
        Meter
    }

    #[expect(clippy::unused_self, reason = "the interface of `on.rs`")]
    pub(crate) fn in_doubt(&self, _class: &'static str) -> Counted {
        Counted
    }
}

pub(crate) fn connection(_store: &'static str, _server: &str, _is_up: Option<bool>) {}

#[expect(clippy::unused_self, reason = "the interface of `on.rs`")]
impl Meter {
    pub(crate) fn begin(self) -> Acquisition {
        Acquisition
    }

    pub(crate) fn handed_over(self, _place: HandedOver) {}

    pub(crate) fn renewed(self, _renewed: Renewed, _left: Duration) {}
}

#[expect(clippy::unused_self, reason = "the interface of `on.rs`")]
impl Acquisition {
    pub(crate) fn waits(&self) -> Option<Counted> {
        None
    }

    pub(crate) fn acquired(self, _holding: &mut Holding) {}

    pub(crate) fn failed(self, _why: LockErrorKind) {}
}

#[expect(clippy::unused_self, reason = "the interface of `on.rs`")]
impl Holding {
    pub(crate) const fn since(_begin: Instant) -> Self {
        Self
    }

    pub(crate) const fn again() -> Self {
        Self
    }

    pub(crate) fn ends(&mut self, _end: HoldEnd, _now: Instant, _late: Option<Duration>) {}

    pub(crate) fn is_open(&self) -> bool {
        false
    }
}
