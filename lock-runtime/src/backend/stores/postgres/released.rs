//! Releases and their answers.

use tokio::sync::oneshot;

use super::secret::Secret;
use crate::backend::{LeaseId, kits::postgres::error::Failure};

/// A release that is due.
#[derive(Clone, Debug)]
pub(super) struct Due {
    pub(super) id: LeaseId,
    /// The secret for the next holder; `None`: the next holder has to ask.
    pub(super) secret: Option<Secret>,
}

/// The answer to a release.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReleaseOutcome {
    /// The lock was held, and its lease had not ended.
    Held,
    /// The lock was held, but its lease had ended.
    Ended,
    /// The lock is held, but its row is locked.
    Locked,
    NotOurs,
}

/// An answer, and whether the statement may have been executed before.
pub(super) type Released = Result<(ReleaseOutcome, bool), Failure>;

/// The releases that wait for a statement.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) due: Vec<(Due, oneshot::Sender<Released>)>,
    /// Whether a task is sending the releases.
    pub(super) runs: bool,
}
