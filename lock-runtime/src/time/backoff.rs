//! Pauses between attempts.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

#[cfg(test)]
use crate::simulated;

/// The shortest and the longest pause after a failed attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Returns the pause after the `attempt`-th failed attempt in a row (from 0).
pub(crate) fn backoff(attempt: u32) -> Duration {
    spread(pause(attempt), random())
}

/// Returns the longest pause after this attempt; it doubles with each attempt.
fn pause(attempt: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << attempt.min(30)).min(LONGEST_PAUSE)
}

/// Picks a pause between half of `length` and all of it, so that callers that failed together do not retry together.
fn spread(length: Duration, random: u32) -> Duration {
    length / 2 + (length / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// Picks a pause between two.
pub(crate) fn between([least, most]: [Duration; 2]) -> Duration {
    least + most.saturating_sub(least).mul_f64(f64::from(random()) / f64::from(u32::MAX))
}

/// Returns a random number. Not for secrets: it only has to differ between processes and from call to call.
pub(crate) fn random() -> u32 {
    #[cfg(test)]
    if let Some(random) = simulated::random() {
        return random;
    }
    let [a, b, c, d, ..] = RandomState::new().hash_one(()).to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_grow_and_are_bounded() {
        assert_eq!(pause(0), 20 * MS);
        assert_eq!(pause(1), 40 * MS);
        assert_eq!(pause(40), 1000 * MS);
    }

    #[test]
    fn a_pause_is_spread_over_its_second_half() {
        assert_eq!(spread(20 * MS, 0), 10 * MS);
        assert_eq!(spread(20 * MS, u32::MAX), 20 * MS);
        let pauses: Vec<_> = (0..100).map(|_| backoff(3)).collect();
        assert!(pauses.iter().all(|pause| (80 * MS..=160 * MS).contains(pause)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "all the same: {pauses:?}");
    }
}
