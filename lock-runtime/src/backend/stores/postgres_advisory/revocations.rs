//! What a session knows of revocations.

use std::collections::HashSet;

use crate::{
    backend::kits::postgres::revocations::{Last, PAUSE, PAUSE_IF_NOTIFIED},
    time::clock::Instant,
};

/// What a session knows of revocations.
pub(super) struct Revocations {
    /// The numbers of the session's locks that are revoked.
    pub(super) revoked: HashSet<i64>,
    pub(super) last: Last,
    pub(super) looked: Instant,
    /// Whether a notification asks the session to look.
    pub(super) is_hinted: bool,
}

impl Revocations {
    pub(super) fn since(now: Instant) -> Self {
        Self { revoked: HashSet::new(), last: Last::Unknown, looked: now, is_hinted: false }
    }

    /// Returns when the session looks again, if it has locks.
    pub(super) fn next_look(&self) -> Instant {
        self.looked + if self.is_hinted { PAUSE_IF_NOTIFIED } else { PAUSE }
    }
}
