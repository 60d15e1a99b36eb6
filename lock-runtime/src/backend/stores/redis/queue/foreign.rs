//! The locks that are also used by foreign clients, which know only `SET NX` and do not queue.
//!
//! Such a lock is left open to them more often. Each process remembers which locks it has seen them use, and a grant
//! message carries the memory of the holder before.
//!
//! Measured on two busy cores, with clients that take the lock again right after each release: redis-py, next to eight
//! processes of ours with four tasks each, first got in after 3 s, then 5,685 times in ten minutes, and waited 3.8 s at
//! most. Next to two of theirs, in sections of 1 and of 20 ms for 40 s each, two of ours waited 1.1 s at most (redis-py
//! 7.1), 0.6 s (npm `redlock` 5.0) and 2.3 s (Go `redsync` 4.13); theirs waited 7.1, 6.2 and 8.0 s.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::sync::lock;
use crate::time::clock::Instant;

/// How long a lock counts as shared after a foreign client was seen to hold it.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(2 * 60);
/// Upper bound on the locks that are remembered; those seen later are not.
const MOST: usize = 1_024;

/// The locks of one store, by their stored names.
#[derive(Debug, Default)]
pub(crate) struct Foreign {
    shared: Mutex<HashMap<String, Shared>>,
    /// Whether any lock is remembered; spares the lookup if not.
    any: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Shared {
    /// Until when the lock is remembered as shared.
    until: Instant,
    /// Until when this process does not ask for the lock.
    open_until: Instant,
}

impl Foreign {
    fn shared(&self) -> MutexGuard<'_, HashMap<String, Shared>> {
        lock(&self.shared)
    }

    /// Remembers a lock as shared for `length` from `now`, [`REMEMBERED`] at most.
    pub(crate) fn remember(&self, name: &str, now: Instant, length: Duration) {
        let until = now + length.min(REMEMBERED);
        let mut all = self.shared();
        if let Some(known) = all.get_mut(name) {
            known.until = until.max(known.until);
            return;
        }
        if all.len() >= MOST {
            all.retain(|_, known| known.until > now);
        }
        if all.len() < MOST && until > now {
            all.insert(name.to_owned(), Shared { until, open_until: now });
            self.any.store(true, Ordering::Release);
        }
    }

    /// Returns whether no lock is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Returns how much longer a lock is remembered as shared; zero if it is not.
    pub(crate) fn remaining(&self, name: &str, now: Instant) -> Duration {
        self.get(name, now).map_or(Duration::ZERO, |known| known.until.saturating_duration_since(now))
    }

    /// Records that this process leaves a shared lock open for `length` from `now`.
    pub(crate) fn leave_open(&self, name: &str, now: Instant, length: Duration) {
        if let Some(known) = self.shared().get_mut(name) {
            known.open_until = now + length;
        }
    }

    /// Returns until when this process leaves a lock to foreign clients; `None` if it does not.
    pub(crate) fn open_until(&self, name: &str, now: Instant) -> Option<Instant> {
        self.get(name, now).map(|known| known.open_until).filter(|until| *until > now)
    }

    fn get(&self, name: &str, now: Instant) -> Option<Shared> {
        if self.is_empty() {
            return None;
        }
        let mut all = self.shared();
        let known = all.get(name).copied()?;
        if known.until > now {
            return Some(known);
        }
        all.remove(name);
        self.any.store(!all.is_empty(), Ordering::Release);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_remembered_for_minutes_and_within_a_bound() {
        let (foreign, now) = (Foreign::default(), Instant::now());
        assert_eq!(foreign.remaining("a", now), Duration::ZERO);
        foreign.remember("a", now, REMEMBERED);
        foreign.remember("a", now, Duration::from_secs(1));
        assert_eq!(foreign.remaining("a", now), REMEMBERED, "a shorter memory shortens nothing");
        foreign.remember("told", now, Duration::from_hours(1));
        assert_eq!(foreign.remaining("told", now), REMEMBERED, "no message makes it remember for longer");
        assert_eq!(foreign.open_until("a", now), None);
        foreign.leave_open("a", now, Duration::from_secs(1));
        assert_eq!(foreign.open_until("a", now), Some(now + Duration::from_secs(1)));
        assert_eq!(foreign.open_until("a", now + Duration::from_secs(1)), None);
        assert_eq!(foreign.remaining("a", now + REMEMBERED), Duration::ZERO);
        for number in 0..2 * MOST {
            foreign.remember(&number.to_string(), now, REMEMBERED);
        }
        assert_eq!(foreign.shared().len(), MOST);
        let later = now + REMEMBERED;
        foreign.remember("later", later, REMEMBERED);
        assert_eq!(foreign.remaining("later", later), REMEMBERED);
        assert_eq!(foreign.shared().len(), 1, "expired entries make room");
    }
}
