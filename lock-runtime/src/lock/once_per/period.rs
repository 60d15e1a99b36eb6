//! The periods of a scheduled job: their numbers, and how late a claim may be.

use std::time::{Duration, SystemTime};

use crate::time::clock::nanos;

/// A period. The periods of one length are counted in UTC, from 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period {
    pub(super) number: u64,
    pub(super) length: Duration,
}

impl Period {
    /// Returns the period for which a start counts, `now` after the beginning of 1970.
    ///
    /// A start in the last tenth of a period counts for the next one: a timer may fire a little early, and a clock may be
    /// slow. Without this rule, a timer that is a millisecond early would miss its period on every machine.
    pub(super) fn of(now: Duration, length: Duration) -> Self {
        let number = nanos(now + length / 10) / nanos(length).max(1);
        Self { number, length }
    }

    /// Returns the beginning, counted from the beginning of 1970.
    fn begins(self) -> Duration {
        Duration::from_nanos(self.number.saturating_mul(nanos(self.length)))
    }

    fn ends(self) -> Duration {
        self.begins() + self.length
    }

    /// Returns the beginning.
    pub(super) fn beginning(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.begins()
    }

    /// Returns how long a mark that is set at `now` has to last: until a tenth after the end of the period, when no client
    /// whose clock differs by less than a tenth starts for this period any more.
    pub(super) fn mark_lasts(self, now: Duration) -> Duration {
        (self.ends() + self.length / 10).saturating_sub(now)
    }

    /// Returns the time from `now` until starts count for the next period.
    pub(super) fn until_next(self, now: Duration) -> Duration {
        self.ends().saturating_sub(now + self.length / 10)
    }

    /// Returns whether a mark that was requested at `now` can be relied on if the answer has come after `took`.
    ///
    /// The store may have set the mark at any moment until the answer. If that was after the end of the period, an earlier
    /// mark of this period may have ended before. If it was much later than the request, the mark of a store with leases
    /// lasts that much longer, into the time of the period after the next one, which uses the same entry.
    pub(super) fn is_in_time(self, now: Duration, took: Duration) -> bool {
        took <= self.length / 2 && now + took < self.ends()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(60 * 60);
    const MS: Duration = Duration::from_millis(1);

    fn minutes(minutes: u64) -> Duration {
        Duration::from_secs(60 * minutes)
    }

    fn before(moment: Duration) -> Duration {
        moment.saturating_sub(MS)
    }

    #[test]
    fn a_start_in_the_last_tenth_counts_for_the_next_period() {
        for (now, number) in [
            (Duration::ZERO, 0),
            (before(minutes(54)), 0),
            (minutes(54), 1),
            (before(HOUR), 1),
            (HOUR, 1),
            (before(minutes(114)), 1),
            (minutes(114), 2),
        ] {
            let period = Period::of(now, HOUR);
            assert_eq!(period.number, number, "{now:?}");
            let beginning = SystemTime::UNIX_EPOCH + HOUR * u32::try_from(number).expect("small");
            assert_eq!(period.beginning(), beginning);
        }
    }

    #[test]
    fn a_mark_lasts_until_no_clock_that_differs_by_less_than_a_tenth_starts_for_its_period() {
        let tenth = HOUR / 10;
        for start in 294..364 {
            let now = minutes(start);
            let period = Period::of(now, HOUR);
            let end = now + period.mark_lasts(now);
            // The clock of another client is slow by almost a tenth.
            let theirs = end.saturating_sub(tenth);
            assert!(Period::of(theirs, HOUR).number > period.number, "{now:?}");
            assert!(period.mark_lasts(now) <= crate::options::longest_mark(HOUR));
            // The period after the next one has the same entry. A clock may be fast by almost a tenth.
            if period.is_in_time(now, HOUR / 2) {
                let late = now + HOUR / 2 + period.mark_lasts(now);
                assert!(Period::of(late + tenth, HOUR).number < period.number + 2, "{now:?}");
            }
        }
    }

    #[test]
    fn a_mark_that_may_be_late_is_not_relied_on() {
        let now = minutes(430);
        let period = Period::of(now, HOUR);
        assert!(period.is_in_time(now, Duration::ZERO) && period.is_in_time(now, HOUR / 2));
        assert!(!period.is_in_time(now, HOUR / 2 + MS), "it lasts too long");
        let now = minutes(470);
        assert!(period.is_in_time(now, before(minutes(10))));
        assert!(!period.is_in_time(now, minutes(10)), "another mark may have ended");
    }

    #[test]
    fn the_time_until_the_next_period_is_that_until_a_start_counts_for_it() {
        let now = minutes(430);
        let next = now + Period::of(now, HOUR).until_next(now);
        assert_eq!(Period::of(next, HOUR).number, 8);
        assert_eq!(Period::of(before(next), HOUR).number, 7);
    }
}
