//! The terms of a grant, and the process and session to which the grant belongs.

use std::time::Duration;

use crate::{process::Process, time::clock::Instant};

/// The terms of a lease, which is handed over only to a waiter that asked for the same terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    pub(crate) auto_renew: bool,
}

impl Terms {
    /// Returns the end of a turn that begins at `now`.
    pub(crate) fn turn_ends(self, now: Instant, max_hold: Duration, valid_until: Instant) -> Instant {
        let longest = now + max_hold;
        if self.auto_renew { longest } else { longest.min(valid_until) }
    }
}

/// The process and the session to which a grant belongs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    /// The only process in which the grant is valid; `None` if no other process sees the lock.
    pub(crate) process: Option<Process>,
    /// The timeout of the session with the store, if the store grants session locks.
    pub(crate) session_timeout: Option<Duration>,
}
