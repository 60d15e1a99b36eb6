//! Until when the session is sure to live at the servers: decided from the heartbeats that were answered.
//!
//! The leader of the ensemble ends a session when it has not heard of it for the session's timeout. It hears of it
//! from the server to which we are connected, which collects the signs of life of its clients and reports them each
//! half tick. So an answer proves less than it seems: the server may have died, or have lost the leader, before it
//! reported what it had just answered. And the leader itself may have lost the others, who then choose another one while
//! it still answers, for several ticks: reads, and also a `sync`.
//!
//! Hence only a write counts: a majority has voted for it, so a leader that is chosen later begins the time of all
//! sessions after it was sent. And the server passes it to the leader on the way on which it reports, so the leader that
//! carried it out knew of what had been answered half a tick before it was sent: an answer shows when the sign of life had
//! arrived, while its sending does not. A session's timeout is two ticks or more, so a quarter of it is long enough.

use std::{collections::VecDeque, time::Duration};

use crate::time::{clock::Instant, deadline::valid_until};

/// Heartbeats in one session timeout: between three of them a quarter of it passes, and an answer has time to come.
const IN_A_TIMEOUT: u32 = 10;

/// The request that a heartbeat makes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Probe {
    /// While holds rely on the session: only a write proves something.
    Write,
    /// While none do: it costs the servers nothing.
    Read,
}

/// The heartbeats of one session that were answered.
#[derive(Debug)]
pub(super) struct Heartbeats {
    timeout: Duration,
    /// When they were sent and answered, in this order; before them the session, which the leader itself made after it
    /// had been asked for.
    beats: VecDeque<Beat>,
}

#[derive(Clone, Copy, Debug)]
struct Beat {
    sent: Instant,
    answered: Instant,
}

impl Heartbeats {
    /// Of a session that was asked for at `sent`.
    pub(super) fn new(timeout: Duration, sent: Instant) -> Self {
        Self { timeout, beats: VecDeque::from([Beat { sent, answered: sent }]) }
    }

    /// How long to wait between two.
    pub(super) fn interval(&self) -> Duration {
        self.timeout / IN_A_TIMEOUT
    }

    /// One that was sent at `sent` was answered at `answered`.
    pub(super) fn answered(&mut self, sent: Instant, answered: Instant) {
        self.beats.push_back(Beat { sent, answered });
        while self.beats.get(1).is_some_and(|earlier| self.is_reported(*earlier, sent)) {
            self.beats.pop_front();
        }
    }

    fn is_reported(&self, earlier: Beat, sent: Instant) -> bool {
        earlier.answered + self.timeout / 4 <= sent
    }

    /// Until when the session may be relied on, now that a write was carried out that was sent at `sent`; none where that
    /// proves nothing.
    pub(super) fn valid_until(&self, sent: Instant) -> Option<Instant> {
        let reported = self.beats.iter().rev().find(|earlier| self.is_reported(**earlier, sent))?;
        Some(valid_until(reported.sent, self.timeout))
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
    fn a_write_proves_only_what_was_sent_long_enough_before_it() {
        let mut beats = Heartbeats::new(8 * SEC, at(10));
        let proved = |beats: &Heartbeats, second| beats.valid_until(at(second));
        beats.answered(at(11), at(11));
        assert_eq!(proved(&beats, 11), None, "nothing is sure to be reported");
        beats.answered(at(12), at(12));
        assert_eq!(proved(&beats, 12), Some(valid_until(at(10), 8 * SEC)));
        assert_eq!(proved(&beats, 13), Some(valid_until(at(11), 8 * SEC)));
        beats.answered(at(13), at(13));
        assert_eq!(proved(&beats, 13), Some(valid_until(at(11), 8 * SEC)));
        assert_eq!(proved(&beats, 14), Some(valid_until(at(12), 8 * SEC)));
        assert_eq!(proved(&beats, 12), None, "answered late: what it proved is known");
    }

    #[test]
    fn a_sign_of_life_that_was_late_on_its_way_counts_from_when_it_had_surely_arrived() {
        let mut beats = Heartbeats::new(8 * SEC, at(10));
        beats.answered(at(11), at(13));
        assert_eq!(
            beats.valid_until(at(14)),
            Some(valid_until(at(10), 8 * SEC)),
            "perhaps not reported before 15"
        );
        assert_eq!(beats.valid_until(at(15)), Some(valid_until(at(11), 8 * SEC)));
    }

    #[test]
    fn a_pause_leaves_what_was_proved_before_it_and_counts_anew_after_it() {
        let mut beats = Heartbeats::new(8 * SEC, at(10));
        (11..=16).for_each(|second| beats.answered(at(second), at(second)));
        assert_eq!(beats.valid_until(at(16)), Some(valid_until(at(14), 8 * SEC)));
        // Reconnected.
        for second in [21, 22] {
            beats.answered(at(second), at(second));
            assert_eq!(beats.valid_until(at(second)), Some(valid_until(at(16), 8 * SEC)));
        }
        beats.answered(at(23), at(23));
        assert_eq!(beats.valid_until(at(23)), Some(valid_until(at(21), 8 * SEC)));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut beats = Heartbeats::new(8 * SEC, at(0));
        (1..1000).for_each(|second| beats.answered(at(second), at(second)));
        assert!(beats.beats.len() <= 4, "{}", beats.beats.len());
    }
}
