//! The arithmetic that says how long a holder may rely on a lease, in one place for every store.

use std::time::Duration;

use crate::time::clock::Instant;

/// Returns the deadline of a lease of `length` that was granted or renewed by a request sent at `sent`.
///
/// The moment `sent` must be read before the request is sent, because the lease may have begun in the store at any
/// moment after that. The deadline is earlier than `sent + length`. Two times are subtracted: the possible drift
/// between the two clocks during the lease (1 % of `length` plus 2 ms), and a margin in which the holder is stopped
/// before the store can grant the lock to another client (1 % of `length`, at least 5 ms).
#[must_use]
pub fn valid_until(sent: Instant, length: Duration) -> Instant {
    let drift = length / 100 + Duration::from_millis(2);
    sent + length.saturating_sub(drift + margin(length))
}

/// Returns the time in which the holder of a lease of `length` is stopped before another client can get the lock.
pub(crate) fn margin(length: Duration) -> Duration {
    (length / 100).max(Duration::from_millis(5))
}

/// Returns how long a grant must still be valid for a caller to get it. A grant that is valid for less is released.
///
/// This is a tenth of the lease, but at most 500 ms, which is enough for the first renewal: a lease that the queue of a
/// store grants may be short until it is renewed.
pub(crate) fn min_validity(ttl: Duration) -> Duration {
    (ttl / 10).min(Duration::from_millis(500))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn deadline_lies_before_the_end_of_the_lease() {
        let sent = Instant::now();
        let validity = |length| valid_until(sent, length).saturating_duration_since(sent);
        assert_eq!(validity(30_000 * MS), 29_398 * MS);
        assert_eq!(validity(100 * MS), 92 * MS);
        assert_eq!(validity(5 * MS), Duration::ZERO);
    }

    #[test]
    fn the_shortest_lease_leaves_more_than_the_least_validity() {
        let sent = Instant::now();
        let ttl = 100 * MS;
        assert!(valid_until(sent, ttl) > sent + min_validity(ttl));
    }
}
