//! How long a lease may be relied on: pure arithmetic, in one place for every store.

use std::time::Duration;

use crate::time::clock::Instant;

/// Returns the deadline of a lease of `length` that was granted or renewed by a request sent at `sent`.
///
/// The lease counts from before the request was sent, because the store may have started it at any moment since. Left
/// out are the drift of the two clocks within the lease (1 % and 2 ms), and a margin in which the holder is stopped
/// before the store can give the lock to another client (1 %, at least 5 ms).
#[must_use]
pub fn valid_until(sent: Instant, length: Duration) -> Instant {
    let drift = length / 100 + Duration::from_millis(2);
    sent + length.saturating_sub(drift + margin(length))
}

/// Returns the time in which the holder of a lease of `length` is stopped before another client can have the lock.
pub(crate) fn margin(length: Duration) -> Duration {
    (length / 100).max(Duration::from_millis(5))
}

/// Returns the least validity of a grant that is handed out; with less, it is given back.
///
/// A tenth of the lease, but not more than the first renewal needs to come in time, because a lease that a queue hands
/// over is short until it is renewed.
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
