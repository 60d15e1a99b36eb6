//! The pure part of waiting: what a pushed grant is worth, and when to look again. It reads no clock.
//!
//! A grant that is pushed to a waiter may have been delayed for any time. It is dated by the youngest request of the
//! same owner that was answered «waiting» before the grant was made, never by its own arrival. The rules were
//! model-checked; breaking any of them gave two believers within 16 steps.

use std::time::Duration;

use crate::{clock::Instant, validity::valid_until};

/// How often a place in the queue is refreshed.
pub(super) const REFRESH: Duration = Duration::from_secs(1);
/// How long a waiter has to claim a grant, counted from its last refresh. Longer than [`REFRESH`].
pub(super) const CLAIM_WINDOW: Duration = Duration::from_secs(2);
/// A place that was not refreshed for so long is passed over. At least three times [`REFRESH`].
pub(super) const STALE: Duration = Duration::from_secs(5);
/// How long a queue is kept that nobody refreshes any more: all its places are stale by then.
pub(super) const RETENTION: Duration = Duration::from_secs(8);

/// How much holding passes, on average, until a release leaves a lock free although others queue for it.
pub(super) const OPEN_EVERY: Duration = Duration::from_millis(500);
/// For so long the first in the queue leaves a lock free that was left free for clients that do not queue.
pub(super) const OPEN_FOR: Duration = Duration::from_millis(5);

/// What an owner knows of its place in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// When the request was sent whose answer said that we wait: the youngest-sent such request.
    proven: Instant,
    /// The last fence that was minted when that answer was given.
    seen: u64,
    /// How many stand before us.
    rank: u64,
    /// When the holder's lease runs out.
    holder_expires: Option<Instant>,
}

/// What to do with a pushed grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Push {
    /// It is older than what we know; whatever it granted has ended.
    Stale,
    /// It can be relied on until then, if that is long enough.
    ValidUntil(Instant),
}

impl Place {
    /// After an answer «waiting» to a request sent at `sent`. `pttl` is negative when the holder's key has no end.
    pub(super) fn new(sent: Instant, answered: Instant, seen: u64, rank: u64, pttl_ms: i64) -> Self {
        let holder_expires = u64::try_from(pttl_ms).ok().map(|ms| answered + Duration::from_millis(ms));
        Self { proven: sent, seen, rank, holder_expires }
    }

    /// Takes over a later answer; one to a request that was sent earlier says nothing new.
    pub(super) fn update(&mut self, later: Self) {
        if later.proven >= self.proven {
            *self = later;
        }
    }

    /// Judges a pushed grant of `fence` with a lease of `px`.
    pub(super) fn judge(&self, fence: u64, px: Duration) -> Push {
        if fence <= self.seen { Push::Stale } else { Push::ValidUntil(valid_until(self.proven, px)) }
    }

    /// When to ask again, if nothing is pushed: the first in the queue when the holder's lease runs out, which
    /// nobody reports; everybody soon enough to keep the place.
    pub(super) fn next_poll(&self, now: Instant) -> Instant {
        let refresh = now + REFRESH;
        match self.holder_expires {
            // A server expires a key within its next millisecond.
            Some(expires) if self.rank == 0 => refresh.min((expires + Duration::from_millis(1)).max(now)),
            _ => refresh,
        }
    }

    /// What the holder's lease has left.
    pub(super) fn holder_remaining(&self, now: Instant) -> Option<Duration> {
        self.holder_expires.map(|expires| expires.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_grant_is_dated_by_the_request_that_proved_the_place_and_never_by_its_arrival() {
        let place = Place::new(at(10), at(11), 100, 0, 30_000);
        assert_eq!(place.judge(101, 2 * SEC), Push::ValidUntil(valid_until(at(10), 2 * SEC)));
    }

    #[test]
    fn a_grant_from_before_the_proof_is_stale() {
        let place = Place::new(at(10), at(11), 100, 0, 30_000);
        assert_eq!(place.judge(100, 2 * SEC), Push::Stale);
        assert_eq!(place.judge(99, 2 * SEC), Push::Stale);
    }

    #[test]
    fn an_answer_to_an_older_request_is_ignored() {
        let mut place = Place::new(at(10), at(11), 100, 3, 30_000);
        place.update(Place::new(at(9), at(12), 50, 5, 1));
        assert_eq!(place.judge(100, 2 * SEC), Push::Stale);
        place.update(Place::new(at(12), at(13), 120, 1, 30_000));
        assert_eq!(place.judge(120, 2 * SEC), Push::Stale);
        assert_eq!(place.judge(121, 2 * SEC), Push::ValidUntil(valid_until(at(12), 2 * SEC)));
    }

    #[test]
    fn the_first_looks_when_the_lease_runs_out_and_the_others_refresh() {
        let soon = Place::new(at(10), at(10), 1, 0, 200);
        assert_eq!(soon.next_poll(at(10)), at(10) + Duration::from_millis(201));
        assert_eq!(soon.next_poll(at(20)), at(20), "an end that has passed is looked at now");
        assert_eq!(Place::new(at(10), at(10), 1, 0, 30_000).next_poll(at(10)), at(10) + REFRESH);
        assert_eq!(Place::new(at(10), at(10), 1, 1, 200).next_poll(at(10)), at(10) + REFRESH);
        assert_eq!(Place::new(at(10), at(10), 1, 0, -1).next_poll(at(10)), at(10) + REFRESH);
    }

    #[test]
    fn windows_fit_each_other() {
        assert!(CLAIM_WINDOW > REFRESH);
        assert!(STALE >= 3 * REFRESH);
        assert!(RETENTION > STALE);
    }
}
