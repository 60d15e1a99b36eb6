//! The pure part of waiting, which reads no clock: how to judge a pushed grant, and when to poll again.

use std::time::Duration;

use super::super::proof::Terms;
use crate::{backend::common::place_proof::PlaceProof, time::clock::Instant};

/// Upper bound on the time between two refreshes of a place in the queue.
pub(crate) const REFRESH: Duration = Duration::from_secs(1);
/// Upper bound on the time between two refreshes of a place that was far back when it was refreshed last. A shorter
/// time would cost the server much if there are very many waiters. If a waiter that is far back is granted the lock and
/// the message is lost, the grant ends before the waiter finds it.
const FAR_REFRESH_INTERVAL: Duration = Duration::from_millis(2_500);
/// A place with at least this number of waiters ahead of it is far back.
pub(crate) const FAR_RANK: usize = 16;
/// Step to which refreshes are aligned, so that the refreshes of a process share calls.
const TICK: Duration = Duration::from_millis(100);
/// Time for a waiter to claim a grant. The time is longer than [`REFRESH`], after which the waiter finds a grant whose
/// message was lost. (A grant with a `ttl` shorter than [`REFRESH`] ends first, and its waiter goes to the end of the
/// queue.)
pub(crate) const CLAIM_WINDOW: Duration = Duration::from_secs(2);
/// Time without a refresh after which a place is skipped. At least three times [`REFRESH`].
pub(crate) const STALE: Duration = Duration::from_secs(5);
/// Time for which a queue is kept without a refresh; all its places are stale by then.
pub(crate) const RETENTION: Duration = Duration::from_secs(8);
/// Only the first `INLINE_PLACES` entries of a queue may contain the places of their waiters. All other places are in a
/// hash.
pub(crate) const INLINE_PLACES: usize = 8;

/// Pause between polls of the first in the queue while the lock is left open, to see whether it is used; also the
/// minimum pause before a poll on a notice of the opening.
pub(crate) const LOOK_WHILE_OPEN: Duration = Duration::from_millis(10);
/// Minimum and maximum pause between polls of the first in the queue behind a holder whose release is not announced.
const LOOK_BEHIND_FOREIGN: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(100)];
/// Minimum and maximum length of a rush, in which the first in the queue polls without a pause: foreign clients may
/// take the lock again within a fraction of a millisecond after each release, which the usual polls miss. The length is
/// doubled until a rush is longer than a foreign client holds the lock.
const RUSH: [Duration; 2] = [Duration::from_millis(40), Duration::from_millis(200)];
/// Minimum time from the beginning of a rush to the beginning of the next, as a multiple of the rush's length.
const RUSH_SHARE: u32 = 10;
/// Minimum and maximum time from the end of an opening to the polls of the waiters behind the first waiter, in case the
/// first waiter is dead.
const LOOK_AFTER_OPEN: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(50)];
/// Minimum pause before a poll on a message that proves nothing.
pub(crate) const LOOK_ON_DOUBT: Duration = Duration::from_millis(50);

/// The position of a place in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    First,
    Near,
    /// Behind [`FAR_RANK`] others.
    Far,
}

/// The reason why a waiter does not get the lock yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A client of this library holds the lock.
    Held,
    /// A foreign client, whose release notifies no waiter, holds the lock. `hold` differs from one hold to the next.
    HeldByForeign { hold: u32 },
    /// The lock is left open to foreign clients.
    Open,
}

/// An owner's knowledge of its place in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The latest request that was answered "waiting", with the last fence that the server had minted when it answered: a
    /// grant with a larger fence is newer than this request.
    pub(crate) proof: PlaceProof,
    pub(crate) rank: Rank,
    pub(crate) standing: Standing,
    /// When the holder's lease, or the opening, ends.
    pub(crate) ends: Option<Instant>,
    /// The last rush.
    pub(crate) rush: Option<FastPolling>,
}

/// A period of polling without a pause, which begins after a release of a foreign client was missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FastPolling {
    began: Instant,
    length: Duration,
    /// Whether a release was missed while the rush went on. If so, the next rush is no longer than this rush, because a
    /// longer rush would miss such a release, too.
    spanned_one: bool,
    /// Whether a release was missed since the rush began.
    missed: bool,
}

impl FastPolling {
    fn new(began: Instant, length: Duration) -> Self {
        Self { began, length, spanned_one: false, missed: false }
    }

    /// Returns the rush after a poll, which showed whether a release was `missed`.
    fn after_look(last: Option<Self>, missed: bool, now: Instant) -> Option<Self> {
        let Some(mut rush) = last else {
            return missed.then(|| Self::new(now, RUSH[0]));
        };
        rush.missed |= missed;
        rush.spanned_one |= missed && rush.goes_on(now);
        if !rush.missed || now < rush.began + RUSH_SHARE * rush.length {
            return Some(rush);
        }
        let length = if rush.spanned_one { rush.length } else { RUSH[1].min(2 * rush.length) };
        Some(Self::new(now, length))
    }

    fn goes_on(&self, now: Instant) -> bool {
        now < self.began + self.length
    }
}

/// The judgement of a pushed grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Push {
    /// The grant is older than our last answer; its hold has ended.
    Stale,
    /// Any client may have sent the message, which is at most a reason to poll.
    Doubtful,
    /// The grant can be relied on until this time, if enough validity is left.
    ValidUntil(Instant),
}

impl Place {
    /// Takes over a later answer, which came at `now`; ignores an answer to a request that was sent earlier.
    pub(crate) fn update(&mut self, later: Self, now: Instant) {
        if later.proof.sent < self.proof.sent {
            return;
        }
        let rush = match (self.standing, later.standing) {
            (Standing::HeldByForeign { hold: last }, Standing::HeldByForeign { hold })
                if later.is_first() =>
            {
                FastPolling::after_look(self.rush, hold != last, now)
            }
            // A client that came in through an opening was asking repeatedly, and will probably ask again after its
            // release.
            (Standing::Open, Standing::HeldByForeign { .. }) if later.is_first() => {
                FastPolling::after_look(self.rush, true, now)
            }
            _ => self.rush,
        };
        *self = Self { rush, ..later };
    }

    pub(crate) fn is_first(&self) -> bool {
        self.rank == Rank::First
    }

    fn refresh(&self) -> Duration {
        if self.rank == Rank::Far { FAR_REFRESH_INTERVAL } else { REFRESH }
    }

    /// Records that the lock is left open for `length` from `now`.
    pub(crate) fn opened(&mut self, now: Instant, length: Duration) {
        (self.standing, self.ends) = (Standing::Open, Some(now + length));
    }

    /// Judges a pushed grant of a lock that was asked for with this `ttl`, which no grant exceeds. `proven` tells whether
    /// the message comes from the server.
    pub(crate) fn judge(&self, Terms { fence, px, .. }: Terms, proven: bool, ttl: Duration) -> Push {
        if !proven || px > ttl {
            return Push::Doubtful;
        }
        self.proof.deadline(fence, px).map_or(Push::Stale, Push::ValidUntil)
    }

    /// Returns when to poll for the first time if nothing is pushed.
    ///
    /// The first poll is not aligned, because most waiters are granted the lock before it. An aligned timer could become
    /// the earliest timer of the runtime, and wake the runtime's driver for nothing.
    pub(crate) fn first_poll(&self, now: Instant, random: u32) -> Instant {
        self.poll_by(now + self.refresh(), now, random)
    }

    /// Returns when to poll again if nothing is pushed.
    pub(crate) fn next_poll(&self, now: Instant, random: u32) -> Instant {
        self.poll_by((now + self.refresh()).on_a_tick_of(TICK), now, random)
    }

    /// Returns when to poll, at the latest when the place has to be refreshed.
    ///
    /// The first in the queue polls when the holder's lease runs out, because no message announces an expiry. `random`
    /// spreads polls that must not coincide.
    fn poll_by(&self, refresh: Instant, now: Instant, random: u32) -> Instant {
        // A server may keep a key for up to one millisecond after the key's expiry time.
        let ended = self.ends.map(|ends| (ends + Duration::from_millis(1)).max(now));
        let look = match (self.standing, self.is_first()) {
            (Standing::Held, true) => ended,
            (Standing::HeldByForeign { .. }, true) if self.rush.is_some_and(|rush| rush.goes_on(now)) => {
                Some(now)
            }
            (Standing::HeldByForeign { .. }, true) => {
                let soon = now + spread(LOOK_BEHIND_FOREIGN, random);
                Some(ended.map_or(soon, |ended| ended.min(soon)))
            }
            (Standing::Open, true) => ended.map(|ended| ended.min(now + LOOK_WHILE_OPEN)),
            (Standing::Open, false) => ended.map(|ended| ended + spread(LOOK_AFTER_OPEN, random)),
            (Standing::Held | Standing::HeldByForeign { .. }, false) => None,
        };
        look.map_or(refresh, |look| look.min(refresh))
    }

    /// Returns the time left of the holder's lease, or of the opening; [`Duration::MAX`] if a foreign client holds the
    /// lock without an expiry.
    ///
    /// `self` must come from the answer to a poll: only such an answer always has the expiry.
    pub(crate) fn holder_remaining(&self, now: Instant) -> Option<Duration> {
        match (self.ends, self.standing) {
            (Some(ends), _) => Some(ends.saturating_duration_since(now)),
            (None, Standing::HeldByForeign { .. }) => Some(Duration::MAX),
            (None, _) => None,
        }
    }
}

fn spread([least, most]: [Duration; 2], random: u32) -> Duration {
    least + most.saturating_sub(least).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::deadline::valid_until;

    const SEC: Duration = Duration::from_secs(1);
    const MS: Duration = Duration::from_millis(1);

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn place(sent: Instant, last: u64) -> Place {
        Place {
            proof: PlaceProof { sent, last },
            rank: Rank::First,
            standing: Standing::Held,
            ends: Some(sent + 30 * SEC),
            rush: None,
        }
    }

    fn rank(first: bool) -> Rank {
        if first { Rank::First } else { Rank::Near }
    }

    fn terms(fence: u64, px: Duration) -> Terms {
        Terms { fence, px, foreign: Duration::ZERO }
    }

    #[test]
    fn a_grant_is_dated_by_the_request_that_proved_the_place_and_never_by_its_arrival() {
        let place = place(at(10), 100);
        assert_eq!(
            place.judge(terms(101, 2 * SEC), true, 9 * SEC),
            Push::ValidUntil(valid_until(at(10), 2 * SEC))
        );
    }

    #[test]
    fn a_grant_from_before_the_proof_is_stale() {
        let place = place(at(10), 100);
        assert_eq!(place.judge(terms(100, 2 * SEC), true, 9 * SEC), Push::Stale);
        assert_eq!(place.judge(terms(99, 2 * SEC), true, 9 * SEC), Push::Stale);
    }

    #[test]
    fn a_grant_without_a_proof_or_longer_than_what_was_asked_for_is_doubtful() {
        let place = place(at(10), 100);
        assert_eq!(place.judge(terms(101, 2 * SEC), false, 9 * SEC), Push::Doubtful);
        assert_eq!(place.judge(terms(101, 9 * SEC + MS), true, 9 * SEC), Push::Doubtful);
        assert!(matches!(place.judge(terms(101, 9 * SEC), true, 9 * SEC), Push::ValidUntil(_)));
    }

    #[test]
    fn an_answer_to_an_older_request_is_ignored() {
        let mut known = place(at(10), 100);
        known.update(place(at(9), 50), at(13));
        assert_eq!(known.judge(terms(100, 2 * SEC), true, 9 * SEC), Push::Stale);
        known.update(place(at(12), 120), at(13));
        assert_eq!(known.judge(terms(120, 2 * SEC), true, 9 * SEC), Push::Stale);
        let valid = Push::ValidUntil(valid_until(at(12), 2 * SEC));
        assert_eq!(known.judge(terms(121, 2 * SEC), true, 9 * SEC), valid);
    }

    #[test]
    fn the_first_looks_when_the_lease_runs_out_and_the_others_refresh() {
        let known = |first, ends| Place { rank: rank(first), ends, ..place(at(10), 1) };
        let soon = Some(at(10) + 200 * MS);
        assert_eq!(known(true, soon).next_poll(at(10), 0), at(10) + 201 * MS);
        assert_eq!(known(true, soon).next_poll(at(20), 0), at(20), "an end that has passed is polled now");
        assert_eq!(known(true, Some(at(40))).next_poll(at(10), 0), at(11));
        assert_eq!(known(false, soon).next_poll(at(10), 0), at(11));
        assert_eq!(known(true, None).next_poll(at(10), 0), at(11));
        assert_eq!(known(true, None).first_poll(at(10) + 199 * MS, 0), at(11) + 199 * MS);
        assert_eq!(known(true, soon).first_poll(at(10), 0), at(10) + 201 * MS);
        let far = Place { rank: Rank::Far, ..known(false, None) };
        assert_eq!(far.first_poll(at(10), 0), at(12) + 500 * MS);
        assert_eq!(far.next_poll(at(10) + 50 * MS, 0), at(12) + 500 * MS);
        assert_eq!(
            known(true, None).next_poll(at(10) + 199 * MS, 0),
            at(11) + 100 * MS,
            "those within 0.1 s together"
        );
    }

    #[test]
    fn only_the_first_looks_often_behind_another_kind_of_client() {
        let known = |first| Place {
            rank: rank(first),
            standing: Standing::HeldByForeign { hold: 1 },
            ..place(at(10), 1)
        };
        let after = |random| known(true).next_poll(at(10), random).saturating_duration_since(at(10));
        assert_eq!((after(0), after(u32::MAX)), (50 * MS, 100 * MS));
        assert_eq!(known(false).next_poll(at(10), 0), at(11));
        let ends = Place { ends: Some(at(10) + 30 * MS), ..known(true) };
        assert_eq!(ends.next_poll(at(10), 0), at(10) + 31 * MS);
    }

    /// Returns the milliseconds, before `until`, in which the first in a queue polls behind holds of `hold` ms that
    /// follow each other at once. Each poll takes 1 ms.
    fn looks_behind(hold: u64, until: u64) -> Vec<u64> {
        let answer = |ms: u64| {
            let hold = u32::try_from(ms / hold).unwrap();
            Place {
                standing: Standing::HeldByForeign { hold },
                ends: None,
                ..place(at(0) + Duration::from_millis(ms), 1)
            }
        };
        let (mut now, mut known, mut looks) = (0, answer(0), Vec::new());
        while now < until {
            looks.push(now);
            let moment = at(0) + Duration::from_millis(now + 1);
            known.update(answer(now), moment);
            let wait = known.next_poll(moment, u32::MAX).saturating_duration_since(moment);
            now += 1 + u64::try_from(wait.as_millis()).unwrap();
        }
        looks
    }

    #[test]
    fn the_first_rushes_now_and_then_behind_clients_that_leave_no_pause() {
        for hold in [1, 20, 70, 150] {
            let looks = looks_behind(hold, 10_000);
            let rushed = looks.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
            // A tenth of the time at most, counted from the first rush.
            assert!((500..=1_200).contains(&rushed), "{rushed} ms of 10 s, behind holds of {hold} ms");
            // A release, between two holds, falls between two polls of a rush.
            let met = |from: u64, to: u64| {
                looks.windows(2).any(|pair| {
                    pair[0] >= from
                        && pair[1] < to
                        && pair[1] == pair[0] + 1
                        && pair[0] / hold != pair[1] / hold
                })
            };
            for from in (3_000..7_000).step_by(100) {
                assert!(met(from, from + 3_000), "no release of 3 s was met, behind holds of {hold} ms");
            }
        }
        let looks = looks_behind(1_000_000, 10_000);
        assert!(looks.len() <= 101, "behind one that holds it, {} polls in 10 s", looks.len());
    }

    #[test]
    fn a_lock_that_is_left_open_is_looked_at_meanwhile_by_the_first_and_afterwards_by_all() {
        let mut known = place(at(10), 1);
        known.opened(at(10), 100 * MS);
        assert_eq!(known.next_poll(at(10), 0), at(10) + 10 * MS);
        assert_eq!(known.next_poll(at(10) + 95 * MS, 0), at(10) + 101 * MS);
        let mut used = known;
        let taken = Place { standing: Standing::HeldByForeign { hold: 1 }, ends: None, ..place(at(10), 1) };
        used.update(taken, at(10));
        assert_eq!(used.next_poll(at(10), 0), at(10), "it rushes behind one that has come in");
        known.rank = Rank::Near;
        assert_eq!(known.next_poll(at(10), 0), at(10) + 121 * MS);
        known.opened(at(10), Duration::from_hours(1));
        assert_eq!(known.next_poll(at(10), 0), at(11), "whatever a message says, the place is kept");
    }

    #[test]
    fn windows_fit_each_other() {
        // A grant whose message was lost is found before it ends, with enough of it left to enter.
        assert!(CLAIM_WINDOW > REFRESH + Duration::from_millis(500));
        assert!(STALE >= 3 * REFRESH && STALE >= 2 * FAR_REFRESH_INTERVAL);
        assert!(RETENTION > STALE);
    }
}
