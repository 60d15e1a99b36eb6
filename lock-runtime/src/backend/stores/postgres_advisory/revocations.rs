//! What a session knows of revocations.

use std::collections::HashSet;

use crate::{
    backend::kits::postgres::revocations::{Last, PAUSE, PAUSE_IF_NOTIFIED},
    time::clock::Instant,
};

/// Upper bound on the looks of which none reads the rows of the session's locks, because no revocation was announced. The
/// announcement is a statement of its own, which may fail or come before the revocation.
const MAX_LOOKS_WITHOUT_READING: u32 = 10;

/// What a session knows of revocations.
pub(super) struct Revocations {
    /// The numbers of the session's locks that are revoked.
    pub(super) revoked: HashSet<i64>,
    last: Last,
    pub(super) looked: Instant,
    /// Whether a notification asks the session to look.
    pub(super) is_hinted: bool,
    /// Number of looks since the rows of the session's locks were read.
    looks_without_reading: u32,
}

impl Revocations {
    pub(super) fn since(now: Instant) -> Self {
        Self {
            revoked: HashSet::new(),
            last: Last::Unknown,
            looked: now,
            is_hinted: false,
            looks_without_reading: 0,
        }
    }

    /// Returns whether the rows of the session's locks have to be read, given the number of the last revocation.
    pub(super) fn has_to_read(&mut self, last: Last) -> bool {
        self.looks_without_reading += 1;
        last != self.last || self.looks_without_reading > MAX_LOOKS_WITHOUT_READING
    }

    /// Notes that the rows were read after the revocation with this number.
    pub(super) fn has_read(&mut self, last: Last) {
        (self.last, self.looks_without_reading) = (last, 0);
    }

    /// Returns when the session looks again, if it has locks.
    pub(super) fn next_look(&self) -> Instant {
        self.looked + if self.is_hinted { PAUSE_IF_NOTIFIED } else { PAUSE }
    }
}
