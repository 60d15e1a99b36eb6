//! The end of a turn, and the further use of its lease, which is handed over, released, retained, or left to expire.

use std::sync::Arc;

use crate::{
    backend::Renew,
    engine::{
        Engine,
        cohort::{AfterTurn, GrantReceiver},
        hold::{Hold, Turn},
        loss::ReleaseTarget,
        permit::Permit,
        renewal::{LossHandler, Renewals},
    },
    metrics::Metrics,
    time::{clock::Instant, deadline::margin},
};

/// Why a turn ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TurnEnd<'a> {
    /// The turn's guard is released or dropped. The permit counts the lock as held while the turn is retained for
    /// `hold_at_least`.
    Left(&'a Permit),
    /// The task to which the turn was handed over does not use it.
    Unused,
    /// The turn was retained, and `hold_at_least` is over.
    RetentionOver,
}

impl Engine {
    /// Ends a turn; returns whether the caller has to release the lease in the store.
    pub(crate) fn end_turn(&self, turn: &Arc<Turn>, why: TurnEnd<'_>, now: Instant) -> AfterTurn {
        let hold = &turn.hold;
        let permit = match why {
            TurnEnd::Left(permit) => Some(permit),
            TurnEnd::Unused => None,
            // The holder's part of the turn ended when the retention began.
            TurnEnd::RetentionOver => return self.pass_on(turn, hold.is_valid(now), now),
        };
        let (valid, covered) = (turn.is_valid(now), turn.is_covered(now));
        // From here on, the renewal job no longer watches the turn, so the loss is logged here.
        if permit.is_some() && !covered && hold.is_first_report() {
            hold.cause(now).log(hold.key());
        }
        // The turn ends before the next holder is notified, so that no `HeldLock` of this turn is valid during the next
        // turn.
        if !turn.end() {
            return AfterTurn::Nothing;
        }
        // A lock that an operator has revoked is not kept: it is to be free when its holder has left.
        match permit.filter(|_| now < turn.retained_until() && !hold.is_revoked()) {
            None => return self.pass_on(turn, valid, now),
            Some(permit) if covered => self.retain(turn, permit.hand_on(), now),
            Some(_) => self.leave_to_store(turn, now),
        }
        AfterTurn::Nothing
    }

    /// Ends a turn, and releases its lease if necessary: at once if the store can release without waiting, else in the
    /// background.
    pub(crate) fn end_turn_in_background(&self, turn: &Arc<Turn>, why: TurnEnd<'_>, now: Instant) {
        let hold = &turn.hold;
        let target = match why {
            TurnEnd::Left(_) if turn.is_valid(now) => ReleaseTarget::Hold,
            TurnEnd::RetentionOver => ReleaseTarget::Hold,
            TurnEnd::Left(_) | TurnEnd::Unused => ReleaseTarget::Remains,
        };
        if self.end_turn(turn, why, now) == AfterTurn::Nothing {
            return;
        }
        match hold.in_store.as_releasable().release_now() {
            Some(answer) => target.log(hold.key(), answer),
            None => self.releaser.release(hold.in_store.releasable(), target, hold.gone_by(now)),
        }
    }

    /// Hands over the lease of a turn that is over, if the turn was `valid` and a task waits.
    fn pass_on(&self, turn: &Arc<Turn>, valid: bool, now: Instant) -> AfterTurn {
        let after = self.cohorts.leave(turn, valid, now);
        match after {
            AfterTurn::Nothing => self.renewals.turn_moved(&turn.hold),
            AfterTurn::Release => self.renewals.remove(&turn.hold),
        }
        after
    }

    /// Retains the hold of a turn whose holder has left, until `hold_at_least` has passed.
    fn retain(&self, turn: &Arc<Turn>, permit: Permit, now: Instant) {
        let hold = &turn.hold;
        turn.retain(Box::new(permit));
        self.renewals.turn_moved(hold);
        // If the hold was lost meanwhile, it is no longer in the schedule, so the job would not end the retention.
        if hold.is_closed() && hold.end_retention(now).is_some() && hold.is_revoked() {
            self.releaser.release(hold.in_store.releasable(), ReleaseTarget::Remains, hold.gone_by(now));
        }
    }

    /// Releases a hold that an operator has revoked, and that the store keeps until its release or its deadline. The
    /// guard's release usually comes first.
    fn release_revoked(&self, hold: &Arc<Hold>, was_retained: bool) {
        let (now, deadline) = (Instant::now(), hold.deadline());
        let (releasable, gone_by) = (hold.in_store.releasable(), hold.gone_by(now));
        if was_retained {
            self.releaser.release(releasable, ReleaseTarget::Remains, gone_by);
        } else if hold.in_store.session().is_some() {
            // A lease ends by itself. A session lock would stay held as long as the session, if the guard is not dropped.
            // The holder may be in a step that it began with the validity that was left before the revocation, so the
            // release comes only after the deadline that was known then.
            let stopped = deadline + margin(hold.longest_validity());
            self.releaser.release_after(now, stopped, releasable, gone_by);
        }
    }

    /// Stops using the hold of a turn that was lost before `hold_at_least` was over. The lock is not released before
    /// `hold_at_least` is over.
    ///
    /// The store may keep the lock after the loss, and a release would free the lock too early.
    fn leave_to_store(&self, turn: &Arc<Turn>, now: Instant) {
        let hold = &turn.hold;
        tracing::debug!(key = %hold.key(), "lost before `hold_at_least` was over; its lease is left to the store");
        self.cohorts.leave(turn, false, now);
        self.renewals.remove(hold);
        if hold.in_store.session().is_some() {
            // Without a release, a session lock would end only with the session.
            self.releaser.release_after(
                now,
                turn.retained_until(),
                hold.in_store.releasable(),
                hold.gone_by(now),
            );
        }
    }
}

impl GrantReceiver for Engine {
    fn take_back(&self, turn: &Arc<Turn>) {
        self.end_turn_in_background(turn, TurnEnd::Unused, Instant::now());
    }
}

impl LossHandler for Engine {
    fn renewals(&self) -> &Arc<Renewals> {
        &self.renewals
    }

    fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    fn renewal(&self) -> Option<&dyn Renew> {
        self.backend.renewal()
    }

    fn end_retention(&self, hold: &Arc<Hold>) -> bool {
        let now = Instant::now();
        let Some((turn, _permit)) = hold.end_retention(now) else { return false };
        self.end_turn_in_background(&turn, TurnEnd::RetentionOver, now);
        tracing::debug!(key = %hold.key(), "`hold_at_least` is over");
        true
    }

    fn lost(&self, hold: &Arc<Hold>, was_retained: bool) {
        self.cohorts.dissolve(hold);
        if hold.is_revoked() {
            self.release_revoked(hold, was_retained);
        } else if hold.in_store.session().is_some() {
            // Without a release, the lock would be held in the store until the session ends, which may be long after
            // the hold's deadline. Unless the guard releases the lock sooner, the release comes after a margin, because
            // the holder has only just been notified to stop.
            let now = Instant::now();
            // Before the deadline, the margin is computed from the `ttl`. After the deadline, the margin is computed
            // from the session timeout if the session timeout is shorter than the `ttl`. This shorter margin is enough
            // after the deadline, because the session ends no earlier than this margin after the deadline.
            let has_ended = now >= hold.deadline();
            let longest = if has_ended { hold.longest_validity() } else { hold.terms.ttl };
            let stopped = now + margin(longest);
            self.releaser.release_after(
                stopped,
                hold.retained_until(),
                hold.in_store.releasable(),
                hold.gone_by(now),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::{Log, Mock};

    #[tokio::test]
    async fn a_loss_that_no_renewal_has_noticed_is_logged_when_the_guard_leaves() {
        let locks = Mock::new().manager();
        let guard = locks.lock("k").acquire().await.expect("granted");
        let (engine, turn) = (locks.engine(), guard.turn());
        let permit = engine.permit().expect("there is room");
        let log = Log::default();
        let logging = tracing::subscriber::set_default(log.clone());
        engine.end_turn(turn, TurnEnd::Left(&permit), turn.deadline());
        drop(logging);
        let texts = log.texts();
        assert_eq!(texts.matches("lock lost").count(), 1, "{texts}");
    }
}
