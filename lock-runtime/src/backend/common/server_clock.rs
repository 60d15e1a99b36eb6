//! An estimate of the server's clock. A request states its time limit in the server's time, and the server does not
//! execute the request after this limit.
//!
//! The server reads its clock before its answer arrives. Therefore, the time in an answer, minus the time of arrival on
//! our clock, is a lower bound on the lead of the server's clock over ours. Of the bounds of the last minute, the
//! largest is the closest. A limit computed from this bound is early rather than late. Only drift, or an unnoticed step
//! back of the server's clock, can make the limit late, by at most [`ERROR`]. A client that has waited [`ERROR`] longer
//! than the limit therefore knows that its request will not be executed.
//!
//! If the bound is too low, as after a jump of the server's clock, the server refuses the request and states its time,
//! and the client repeats the request.

use std::{sync::Mutex, time::Duration};

use crate::{sync::lock, time::clock::Instant};

/// Minimum time for which a bound counts. The maximum is twice this time.
const MIN_BOUND_AGE: Duration = Duration::from_secs(30);
/// Upper bound on the drift of the two clocks while a bound counts, in µs.
const DRIFT: i64 = 10_000;
/// Upper bound on the lateness of a limit: [`DRIFT`], and a step back by up to [`DRIFT`], which goes unnoticed.
pub(crate) const ERROR: Duration = Duration::from_millis(20);

/// The clock of one server, as seen over one connection.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Option<Known>>);

/// Lower bounds on the lead of the server's clock over ours, in µs.
#[derive(Clone, Copy, Debug)]
struct Known {
    best: i64,
    /// The largest bound of the period before `since`.
    before: i64,
    since: Instant,
}

impl ServerClock {
    /// Updates the bounds from the answer to a request that was sent at `sent`. The server answered at `time`, in µs of
    /// its clock, and the answer arrived at `arrived`.
    pub(crate) fn learn(&self, sent: Instant, arrived: Instant, time: u64) {
        let bound = ahead(arrived, time);
        let mut known = lock(&self.0);
        let was_set_back = |known: &Known| ahead(sent, time) + DRIFT < known.best.max(known.before);
        *known = Some(match *known {
            Some(known) if !was_set_back(&known) => {
                if arrived.saturating_duration_since(known.since) < MIN_BOUND_AGE {
                    Known { best: known.best.max(bound), ..known }
                } else {
                    Known { best: bound, before: known.best, since: arrived }
                }
            }
            _ => Known { best: bound, before: bound, since: arrived },
        });
    }

    /// Replaces all bounds with the bound from this answer, because the server's clock has jumped.
    pub(crate) fn replace(&self, arrived: Instant, time: u64) {
        let bound = ahead(arrived, time);
        *lock(&self.0) = Some(Known { best: bound, before: bound, since: arrived });
    }

    /// Returns a lower bound on the server's time at `moment`, in µs; zero before the first answer.
    pub(crate) fn at(&self, moment: Instant) -> u64 {
        lock(&self.0).map_or(0, |known| {
            let micros = micros(moment).saturating_add(known.best.max(known.before));
            u64::try_from(micros).unwrap_or_default()
        })
    }
}

fn micros(moment: Instant) -> i64 {
    i64::try_from(moment.as_nanos() / 1_000).unwrap_or(i64::MAX)
}

fn ahead(moment: Instant, time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX).saturating_sub(micros(moment))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_limit_lies_never_later_than_the_server_s_time() {
        let clock = ServerClock::default();
        assert_eq!(clock.at(at(5)), 0, "nothing is known: refused, with the time");
        // The server is 1,000 s ahead. The answers take 30, 1 and 7 ms.
        for (sent, given, arrived) in [(10, 10, 40), (50, 50, 51), (60, 63, 70)] {
            clock.learn(at(sent), at(arrived), (1_000_000 + given) * 1_000);
            assert!(clock.at(at(arrived)) <= (1_000_000 + arrived) * 1_000);
        }
        assert_eq!(clock.at(at(100)), (1_000_000 + 100 - 1) * 1_000, "the closest bound counts");
    }

    #[test]
    fn a_clock_that_was_set_back_is_believed_at_once_and_a_faster_one_too() {
        let clock = ServerClock::default();
        clock.learn(at(10), at(11), 90_000_000);
        clock.learn(at(20), at(21), 50_000_000);
        assert_eq!(clock.at(at(21)), 50_000_000);
        clock.learn(at(30), at(31), 90_000_000);
        assert_eq!(clock.at(at(31)), 90_000_000);
        clock.replace(at(40), 10_000_000);
        assert_eq!(clock.at(at(41)), 10_001_000);
    }

    #[test]
    fn a_bound_counts_for_a_minute_at_most() {
        let clock = ServerClock::default();
        // The server's clock loses 9 ms against ours in each half minute.
        for half_minute in 0..10 {
            let (now, given) = (half_minute * 30_000 + 1, half_minute * 29_991 + 1);
            clock.learn(at(now), at(now), given * 1_000);
            let ahead = i64::try_from(clock.at(at(now))).expect("small") / 1_000
                - i64::try_from(given).expect("small");
            assert!((0..=20).contains(&ahead), "{ahead} ms, ERROR says");
        }
    }
}
