//! When the command is ended: decisions without I/O.

use std::time::Duration;

use crate::clock::{after, before};

/// Upper bound on the time between TERM and KILL.
const LONGEST_GRACE: Duration = Duration::from_secs(5);
/// Upper bound on how long KILL comes before the deadline, so that the command is gone when the deadline has come.
const LONGEST_SLACK: Duration = Duration::from_millis(50);
/// How long the processes that the command has left in its group may go on after the command, for example to write the
/// last lines of a log.
const LINGER: Duration = Duration::from_secs(1);
/// The pause between two looks at a group that is about to be gone.
const LOOK: Duration = Duration::from_millis(10);

/// When the command's group is ended, unless a renewal comes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Until {
    pub(crate) term: u64,
    pub(crate) kill: u64,
}

/// Returns the time between TERM and KILL for a lock that can be relied on for `longest` after a renewal.
///
/// The result is a third of `longest` at most, because the first renewal is due when a third of `longest` has passed: TERM
/// is sent only if renewals have failed.
fn grace(longest: Duration) -> Duration {
    (longest / 3).min(LONGEST_GRACE)
}

/// Returns when the command is ended if the lock is not renewed before `deadline`.
pub(crate) fn at_deadline(deadline: u64, longest: Duration) -> Until {
    let kill = before(deadline, (longest / 20).min(LONGEST_SLACK));
    Until { term: before(kill, grace(longest)), kill }
}

/// Returns when the command is ended after the lock was revoked: no other client gets the lock before its release or
/// `deadline`, so the command has its grace.
pub(crate) fn revoked(now: u64, deadline: u64, longest: Duration) -> Until {
    let kill = at_deadline(deadline, longest).kill.min(after(now, grace(longest)));
    Until { term: now.min(kill), kill }
}

/// Returns when the command is ended after a loss by which another client may hold the lock already: at once.
pub(crate) fn lost(now: u64) -> Until {
    Until { term: now, kill: now }
}

/// Returns how long the lock may go without a look at its deadline.
pub(crate) fn look_again(longest: Duration) -> Duration {
    (longest / 20).clamp(Duration::from_millis(2), Duration::from_millis(500))
}

/// The state of the command's group, as far as its end is concerned.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Group {
    /// When the command itself ended, and left other processes in its group.
    pub(crate) left_at: Option<u64>,
    /// Whether TERM was sent.
    pub(crate) is_warned: bool,
    /// The first KILL.
    pub(crate) killed_at: Option<u64>,
    /// Whether `distlock` is gone.
    pub(crate) is_orphaned: bool,
}

/// What is done to the group now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing, until this moment.
    Wait(u64),
    Term,
    Kill,
}

/// Decides what is done to a group.
pub(crate) fn step(group: Group, until: Until, now: u64) -> Step {
    let leftovers = group.left_at.map(|left_at| {
        let term = after(left_at, LINGER);
        Until { term, kill: after(term, LONGEST_GRACE) }
    });
    let kill = leftovers.map_or(until.kill, |leftovers| leftovers.kill.min(until.kill));
    let term = leftovers.map_or(until.term, |leftovers| leftovers.term.min(until.term));
    // KILL is repeated, in case that a process was not there yet.
    if group.is_orphaned || now >= kill || group.killed_at.is_some() {
        return Step::Kill;
    }
    if now >= term && !group.is_warned {
        return Step::Term;
    }
    let next = if group.is_warned { kill } else { term.min(kill) };
    // No signal tells when the last process of a group is gone.
    Step::Wait(if leftovers.is_some() { next.min(after(now, LOOK)) } else { next })
}

/// Returns when a group that was killed is looked at again.
pub(crate) fn after_kill(now: u64) -> u64 {
    after(now, LOOK)
}

/// Returns whether a killed group is no longer waited for: a process that the kernel does not let go, a zombie whose
/// parent is outside of the group, or a process of another user.
pub(crate) fn is_given_up(killed_at: u64, now: u64) -> bool {
    now >= after(killed_at, LONGEST_GRACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_end_comes_before_the_deadline_and_never_while_renewals_succeed() {
        for ttl in [100, 500, 2_000, 30_000, 3_600_000] {
            let (deadline, longest) = (10_000_000 * MS, ms(ttl));
            let Until { term, kill } = at_deadline(deadline, longest);
            assert!(term < kill && kill < deadline, "{ttl}");
            // A renewal is due when a third has passed.
            assert!(term > deadline - ttl * MS * 2 / 3, "{ttl}");
            assert!(kill - term <= 5_000 * MS, "{ttl}");
        }
        let Until { term, kill } = at_deadline(100_000 * MS, ms(30_000));
        assert_eq!((kill, term), (99_950 * MS, 94_950 * MS));
    }

    #[test]
    fn a_revocation_leaves_a_grace_and_another_loss_none() {
        let (now, longest) = (1_000_000 * MS, ms(30_000));
        assert_eq!(revoked(now, now + 20_000 * MS, longest), Until { term: now, kill: now + 5_000 * MS });
        assert_eq!(revoked(now, now + 1_000 * MS, longest), Until { term: now, kill: now + 950 * MS });
        assert_eq!(revoked(now, now, longest), Until { term: now - 50 * MS, kill: now - 50 * MS });
        assert_eq!(lost(now), Until { term: now, kill: now });
    }

    #[test]
    fn a_group_is_ended_in_order() {
        let until = Until { term: 100, kill: 200 };
        let running = Group::default();
        assert_eq!(step(running, until, 99), Step::Wait(100));
        assert_eq!(step(running, until, 100), Step::Term);
        let warned = Group { is_warned: true, ..running };
        assert_eq!(step(warned, until, 199), Step::Wait(200));
        assert_eq!(step(warned, until, 200), Step::Kill);
        assert_eq!(step(running, until, 300), Step::Kill, "a keeper that was paused");
        assert_eq!(
            step(Group { killed_at: Some(200), ..warned }, Until { term: 900, kill: 900 }, 201),
            Step::Kill
        );
        assert_eq!(step(Group { is_orphaned: true, ..running }, until, 0), Step::Kill);
    }

    #[test]
    fn processes_that_outlast_the_command_have_a_moment_and_never_more_than_the_lock() {
        let left = Group { left_at: Some(0), ..Group::default() };
        let far = Until { term: u64::MAX, kill: u64::MAX };
        assert_eq!(step(left, far, 0), Step::Wait(10 * MS));
        assert_eq!(step(left, far, 1_000 * MS), Step::Term);
        let warned = Group { is_warned: true, ..left };
        assert_eq!(step(warned, far, 1_001 * MS), Step::Wait(1_011 * MS));
        assert_eq!(step(warned, far, 6_000 * MS), Step::Kill);
        assert_eq!(step(warned, Until { term: 0, kill: 500 * MS }, 500 * MS), Step::Kill);
        assert!(!is_given_up(0, 4_999 * MS) && is_given_up(0, 5_000 * MS));
    }
}
