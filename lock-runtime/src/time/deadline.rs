//! Computes how long a holder may rely on a lease, in the same way for every store.

use std::time::Duration;

use crate::time::clock::Instant;

/// Returns the deadline of a lease that lasts for `length` and was granted or renewed by a request sent at the moment
/// `sent`.
///
/// Read `sent` from the clock before sending the request, because the lease may begin in the store as soon as the
/// request is sent. The deadline is earlier than `sent + length`, because two allowances are subtracted. The first is
/// for drift between this client's clock and the store's clock during the lease: 1% of `length` plus 2 ms. The second
/// is a margin in which the holder can stop before the store grants the lock to another client: 1% of `length`, but at
/// least 5 ms.
#[must_use]
pub fn valid_until(sent: Instant, length: Duration) -> Instant {
    let drift = length / 100 + Duration::from_millis(2);
    sent + length.saturating_sub(drift + margin(length))
}

/// Returns the margin in which the holder of a lease of `length` must stop before another client can get the lock.
pub(crate) fn margin(length: Duration) -> Duration {
    (length / 100).max(Duration::from_millis(5))
}

/// Returns the least remaining validity with which a lease is given to a caller. A lease with less is released.
///
/// The result is a tenth of `ttl`, but at most 500 ms: enough time for the first renewal. When a store's queue
/// grants a lease, part of its `ttl` may already have elapsed, and the first renewal restores the full `ttl`.
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
