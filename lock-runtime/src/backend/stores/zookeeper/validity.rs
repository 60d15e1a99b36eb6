//! The session's deadline, until which the servers certainly keep the session. The deadline is derived from answered
//! heartbeats.
//!
//! The leader of the ensemble ends a session after one session timeout without a sign of life. The server to which we
//! are connected collects the signs of life of its clients and reports them to the leader every half tick. Therefore,
//! an answer proves less than it seems to prove. Our server may have died, or lost the leader, before it reported the
//! heartbeat that it had just answered. And a leader that has lost the other servers still answers reads, and even a
//! `sync`, for several ticks, while the other servers may have elected another leader.
//!
//! Hence, only a write counts, for two reasons. A majority has voted for the write, so a leader that is elected later
//! starts the timeouts of all sessions after the write was sent. And our server forwards writes to the leader on the
//! path of its reports, so the leader that executed the write knew of every sign of life that our server had answered
//! half a tick before the write was sent. (The time of the answer counts, because only the answer shows that the sign
//! of life had arrived.) A session timeout is at least two ticks, so a quarter of the timeout is at least half a tick.
//!
//! The deadline therefore counts from the sending of an earlier heartbeat, which was answered at least a quarter of the
//! timeout before an executed write was sent. A hold outlasts an outage of about six tenths of the timeout, and is lost
//! long before the servers end the session.
//!
//! Two events can make the deadline too late. The leader stands still for longer than a quarter of the timeout minus
//! half a tick, and our server is lost right after. Or the session moves to a server with other bounds, which changes
//! the session's timeout without notifying us.

use std::{collections::VecDeque, time::Duration};

use crate::time::{clock::Instant, deadline::valid_until};

/// Heartbeats per session timeout. Three intervals are a quarter of the timeout, and leave some time for the answer.
const IN_A_TIMEOUT: u32 = 10;

/// The request that a heartbeat makes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Probe {
    /// A write, while nodes of ours may exist in the session: only a write proves anything about the deadline.
    Write,
    /// A read, while no node of ours exists in the session: a read costs the servers no vote.
    Read,
}

/// The answered heartbeats of one session.
#[derive(Debug)]
pub(super) struct Heartbeats {
    timeout: Duration,
    /// In the order of their answers. The initial entry stands for the session itself, which the leader made after the
    /// session was requested.
    beats: VecDeque<Beat>,
}

#[derive(Clone, Copy, Debug)]
struct Beat {
    sent: Instant,
    answered: Instant,
}

impl Heartbeats {
    /// Creates the heartbeats of a session that was requested at `sent`.
    pub(super) fn new(timeout: Duration, sent: Instant) -> Self {
        Self { timeout, beats: VecDeque::from([Beat { sent, answered: sent }]) }
    }

    /// Returns the time between two heartbeats.
    pub(super) fn interval(&self) -> Duration {
        self.timeout / IN_A_TIMEOUT
    }

    /// Records a heartbeat that was sent at `sent` and answered at `answered`.
    pub(super) fn answered(&mut self, sent: Instant, answered: Instant) {
        self.beats.push_back(Beat { sent, answered });
        while self.beats.get(1).is_some_and(|earlier| self.is_reported(*earlier, sent)) {
            self.beats.pop_front();
        }
    }

    fn is_reported(&self, earlier: Beat, sent: Instant) -> bool {
        earlier.answered + self.timeout / 4 <= sent
    }

    /// Returns the session's deadline, as proved by a write that was sent at `sent` and executed; `None` if the write
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
        // The session is reconnected after a pause.
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
