//! How often a lease is renewed: pure arithmetic.

use std::time::Duration;

use crate::time::clock::Instant;

/// Returns when to renew a lease that is valid for `remaining` from `now`: after a third of that.
///
/// Another third is the [limit](renewal_limit) of the attempt, so that a hanging one leaves time for more.
pub(crate) fn renewal_due(now: Instant, remaining: Duration, ttl: Duration) -> Instant {
    let due = now + remaining / 3;
    // Rounded down, so that leases granted at about the same time are renewed in one round trip.
    due.on_a_tick_of(ttl / 64).max(now)
}

/// Returns the time limit of one renewal attempt.
pub(crate) fn renewal_limit(remaining: Duration) -> Duration {
    remaining / 3
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn renewal_is_due_at_a_third_and_never_in_the_past() {
        let now = Instant::now();
        let ttl = 30_000 * MS;
        let due = renewal_due(now, 29_000 * MS, ttl).saturating_duration_since(now);
        assert!(due <= 29_000 * MS / 3 && due + ttl / 64 >= 29_000 * MS / 3, "{due:?}");
        assert_eq!(renewal_due(now, Duration::ZERO, ttl), now);
    }
}
