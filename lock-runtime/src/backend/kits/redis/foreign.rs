//! The locks that foreign clients also use. A foreign client belongs to another library, does not queue, and knows only
//! `SET NX`.
//!
//! A lock that foreign clients use is left open to foreign clients more often. Each process remembers the locks on
//! which it has seen a foreign client, and a holder passes this memory on with the grant message to the next holder.
//!
//! Measured on two cores, with clients that ask for the lock again right after each release. Next to eight busy
//! processes of this library with four tasks each, redis-py first got the lock after 9 s, and then waited 0.9 s at
//! most. Two processes of this library then ran next to two foreign processes, with sections of 1 ms and of 20 ms, for
//! 40 s each. The clients of this library waited 0.5 s at most next to redis-py 7.1 and npm `redlock` 5.0, and 2.3 s
//! next to Go `redsync` 4.13; these foreign clients waited 2.8 s, 5.5 s and 5.5 s at most. Chance decides which foreign
//! client gets the lock in an opening.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{sync::lock, time::clock::Instant};

/// Time for which a lock counts as used by foreign clients after a foreign client was seen to hold it.
pub(crate) const FOREIGN_USE_RETENTION: Duration = Duration::from_secs(2 * 60);
/// Upper bound on the remembered locks; further locks are not remembered.
const MAX_REMEMBERED_LOCKS: usize = 1_024;

/// The period and the length of openings. In an opening, all processes of this library leave a contended lock to
/// clients that do not queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) every: Duration,
    pub(crate) length: Duration,
}

impl Opening {
    /// Returns how long a holder leaves the lock open after a hold from `since` to `now`: zero unless a period ended
    /// during the hold.
    ///
    /// For locks with a queue, `release.lua` applies the same rule, with a phase for each lock.
    pub(crate) fn due(self, since: Instant, now: Instant) -> Duration {
        let period = |moment: Instant| u128::from(moment.as_nanos()) / self.every.as_nanos();
        if period(since) == period(now) { Duration::ZERO } else { self.length }
    }
}

/// The opening while no foreign client is known to use the lock: 1 % of the time. A client that asks ten times a
/// second, as redis-py does, finds the first opening.
pub(crate) const USUAL_OPENING: Opening =
    Opening { every: Duration::from_secs(10), length: Duration::from_millis(100) };
/// The opening while a foreign client is known to use the lock: 22 % of the time.
///
/// If several foreign clients compete for the lock, chance decides at each opening which client gets the lock. Many
/// short openings therefore serve an unlucky client better than a few long ones. The period is not a multiple of the
/// 100 ms after which redis-py asks again; otherwise, the same client would be first at many openings.
pub(crate) const FOREIGN_OPENING: Opening =
    Opening { every: Duration::from_millis(462), length: Duration::from_millis(100) };

/// The uses of one store's locks by foreign clients, by the stored names of the locks.
#[derive(Debug, Default)]
pub(crate) struct Foreign {
    uses: Mutex<HashMap<String, ForeignUse>>,
    /// Whether any use is remembered. If not, callers need not look into the map.
    has_uses: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct ForeignUse {
    /// The time until which the use is remembered.
    until: Instant,
    /// The time until which this process does not ask for the lock.
    open_until: Instant,
}

impl Foreign {
    fn uses(&self) -> MutexGuard<'_, HashMap<String, ForeignUse>> {
        lock(&self.uses)
    }

    /// Remembers, for `length` from `now`, that foreign clients use a lock; for [`FOREIGN_USE_RETENTION`] at most.
    pub(crate) fn remember(&self, name: &str, now: Instant, length: Duration) {
        let until = now + length.min(FOREIGN_USE_RETENTION);
        let mut all = self.uses();
        if let Some(known) = all.get_mut(name) {
            known.until = until.max(known.until);
            return;
        }
        if all.len() >= MAX_REMEMBERED_LOCKS {
            all.retain(|_, known| known.until > now);
        }
        if all.len() < MAX_REMEMBERED_LOCKS && until > now {
            all.insert(name.to_owned(), ForeignUse { until, open_until: now });
            self.has_uses.store(true, Ordering::Release);
        }
    }

    /// Returns whether no lock is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_uses.load(Ordering::Acquire)
    }

    /// Returns how much longer the use of a lock by foreign clients is remembered; zero if no use is remembered.
    pub(crate) fn remaining(&self, name: &str, now: Instant) -> Duration {
        self.get(name, now).map_or(Duration::ZERO, |known| known.until.saturating_duration_since(now))
    }

    /// Records that this process leaves a lock to foreign clients for `length` from `now`.
    pub(crate) fn leave_open(&self, name: &str, now: Instant, length: Duration) {
        if let Some(known) = self.uses().get_mut(name) {
            known.open_until = now + length;
        }
    }

    /// Returns the time until which this process leaves a lock to foreign clients; `None` if this process may ask for
    /// the lock.
    pub(crate) fn open_until(&self, name: &str, now: Instant) -> Option<Instant> {
        self.get(name, now).map(|known| known.open_until).filter(|until| *until > now)
    }

    fn get(&self, name: &str, now: Instant) -> Option<ForeignUse> {
        if self.is_empty() {
            return None;
        }
        let mut all = self.uses();
        let known = all.get(name).copied()?;
        if known.until > now {
            return Some(known);
        }
        all.remove(name);
        self.has_uses.store(!all.is_empty(), Ordering::Release);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn one_hold_in_each_period_is_followed_by_an_opening() {
        let due = |since, now| FOREIGN_OPENING.due(at(since), at(now));
        assert_eq!(due(0, 461), Duration::ZERO);
        assert_eq!(due(461, 462), FOREIGN_OPENING.length);
        assert_eq!(due(462, 923), Duration::ZERO);
        assert_eq!(due(462, 9_000), FOREIGN_OPENING.length, "once, however long it was held");
    }

    #[test]
    fn openings_are_rare_and_long_enough() {
        for (opening, most) in [(USUAL_OPENING, 1), (FOREIGN_OPENING, 22)] {
            assert!(100 * opening.length <= most * opening.every, "{opening:?}");
            assert!(opening.length >= Duration::from_millis(100), "{opening:?}: redis-py asks every 0.1 s");
        }
    }

    #[test]
    fn what_was_seen_is_remembered_for_minutes_and_within_a_bound() {
        let (foreign, now) = (Foreign::default(), Instant::now());
        assert_eq!(foreign.remaining("a", now), Duration::ZERO);
        foreign.remember("a", now, FOREIGN_USE_RETENTION);
        foreign.remember("a", now, Duration::from_secs(1));
        assert_eq!(foreign.remaining("a", now), FOREIGN_USE_RETENTION, "a shorter memory shortens nothing");
        foreign.remember("told", now, Duration::from_hours(1));
        assert_eq!(
            foreign.remaining("told", now),
            FOREIGN_USE_RETENTION,
            "no message makes it remember for longer"
        );
        assert_eq!(foreign.open_until("a", now), None);
        foreign.leave_open("a", now, Duration::from_secs(1));
        assert_eq!(foreign.open_until("a", now), Some(now + Duration::from_secs(1)));
        assert_eq!(foreign.open_until("a", now + Duration::from_secs(1)), None);
        assert_eq!(foreign.remaining("a", now + FOREIGN_USE_RETENTION), Duration::ZERO);
        for number in 0..2 * MAX_REMEMBERED_LOCKS {
            foreign.remember(&number.to_string(), now, FOREIGN_USE_RETENTION);
        }
        assert_eq!(foreign.uses().len(), MAX_REMEMBERED_LOCKS);
        let later = now + FOREIGN_USE_RETENTION;
        foreign.remember("later", later, FOREIGN_USE_RETENTION);
        assert_eq!(foreign.remaining("later", later), FOREIGN_USE_RETENTION);
        assert_eq!(foreign.uses().len(), 1, "expired entries make room");
    }
}
