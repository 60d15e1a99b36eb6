//! The arithmetic of the quorum: pure functions that know no nodes, and read no clock.
//!
//! A quorum is a majority of the configured nodes. A majority of the nodes that can be reached at the moment is not
//! enough: two clients that reach different nodes would both have a majority.

use std::time::Duration;

/// Shortest time for which a divided round waits for a further answer, unless none can be expected soon; also the time
/// after which a silent node is expected to stay silent.
pub(super) const MIN_QUIET: Duration = Duration::from_millis(5);
/// Time for which a divided round waits for a further answer, as a multiple of the time that the round has taken.
const QUIET_MULTIPLE: u32 = 3;

/// Returns the number of nodes that two holders cannot both have.
pub(super) const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// The answers to one question to all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    nodes: usize,
    pub(super) yes: usize,
    pub(super) no: usize,
    /// Nodes without a definite answer, or without a vote.
    pub(super) failed: usize,
}

impl Count {
    pub(super) fn of(nodes: usize) -> Self {
        Self { nodes, yes: 0, no: 0, failed: 0 }
    }

    pub(super) fn add(&mut self, answer: Option<bool>) {
        match answer {
            Some(true) => self.yes += 1,
            Some(false) => self.no += 1,
            None => self.failed += 1,
        }
    }

    fn outstanding(&self) -> usize {
        self.nodes - self.yes - self.no - self.failed
    }

    /// Returns `Yes` once a majority has said yes, `No` once none can, and otherwise `Open`.
    pub(super) fn has_majority(&self) -> Decision {
        let needed = majority(self.nodes);
        if self.yes >= needed {
            Decision::Yes
        } else if self.yes + self.outstanding() < needed {
            Decision::No
        } else {
            Decision::Open
        }
    }

    /// Returns whether an undecided round may be one of several rounds that divide the nodes.
    ///
    /// If several rounds divide the nodes, each round keeps the lock from the other rounds until the nodes that granted
    /// the lock to the round are freed. Such a round should not wait long for the missing answers, because the nodes
    /// that have not answered may hang. A round that no node has refused knows of no other round. A round to which no
    /// node has granted the lock keeps the lock from no other round.
    pub(super) fn is_divided(&self) -> bool {
        self.yes > 0 && self.no > 0 && self.has_majority() == Decision::Open
    }

    /// Returns whether enough nodes said no to make a majority of yes impossible, whatever the failed nodes would say.
    pub(super) fn is_denied(&self) -> bool {
        self.is_denied_by(self.no)
    }

    /// Returns whether the noes of this number of nodes make a majority of yes impossible.
    pub(super) fn is_denied_by(&self, no: usize) -> bool {
        no > self.nodes - majority(self.nodes)
    }

    /// Returns whether the outstanding answers can make the count [denied](Self::is_denied).
    pub(super) fn may_be_denied(&self) -> bool {
        self.no + self.outstanding() > self.nodes - majority(self.nodes)
    }

    /// Returns whether so many nodes failed that the others are no majority.
    pub(super) fn is_out_of_reach(&self) -> bool {
        self.failed > self.nodes - majority(self.nodes)
    }

    /// Returns whether a majority has given definite answers.
    pub(super) fn is_definite(&self) -> bool {
        self.yes + self.no >= majority(self.nodes)
    }
}

/// The time for which a [divided](Count::is_divided) round waits for the nodes that have not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Not at all, because the missing nodes have been silent before.
    None,
    /// A little longer than the other nodes took to answer.
    Short,
    /// Until the limit from which no node executes the acquisition. Where a crashed client left its lease on a few
    /// nodes, all rounds are divided until that lease ends, and only the slow nodes can decide a round.
    UntilTimeout(Duration),
}

impl Patience {
    /// Returns the time after which a divided round is broken off if the round's last answer came after `taken`. Both
    /// times count from the beginning of the round.
    pub(super) fn breaks_off_after(self, taken: Duration) -> Duration {
        match self {
            Self::None => taken,
            Self::Short => taken + MIN_QUIET.max(QUIET_MULTIPLE * taken),
            Self::UntilTimeout(timeout) => timeout,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Open,
    Yes,
    No,
}

/// The fences that nodes minted in one round.
#[derive(Clone, Debug)]
pub(super) struct Fences {
    nodes: usize,
    minted: Vec<u64>,
}

/// The fence of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fence {
    /// A majority minted this very number. Any two majorities share a node; on the shared node, the previous fence of
    /// the lock is smaller, and the next fence is larger.
    Agreed(u64),
    /// The largest number, if the nodes minted different numbers; it must be written back to a majority.
    ToRaise(u64),
}

impl Fences {
    pub(super) fn of(nodes: usize) -> Self {
        Self { nodes, minted: Vec::with_capacity(nodes) }
    }

    pub(super) fn add(&mut self, fence: u64) {
        self.minted.push(fence);
    }

    /// Returns the fence of the grant, once a majority has granted the lock.
    pub(super) fn fence(&self) -> Option<Fence> {
        let needed = majority(self.nodes);
        let count = |fence: u64| self.minted.iter().filter(|other| **other == fence).count();
        let agreed = self.minted.iter().copied().find(|fence| count(*fence) >= needed);
        let largest = || self.minted.iter().copied().max().filter(|_| self.minted.len() >= needed);
        agreed.map(Fence::Agreed).or_else(|| largest().map(Fence::ToRaise))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(nodes: usize, answers: &[Option<bool>]) -> Count {
        let mut count = Count::of(nodes);
        for answer in answers {
            count.add(*answer);
        }
        count
    }

    const YES: Option<bool> = Some(true);
    const NO: Option<bool> = Some(false);

    #[test]
    fn two_holders_always_share_a_node() {
        for nodes in 1..=9 {
            assert!(2 * majority(nodes) > nodes && majority(nodes) <= nodes, "{nodes}");
        }
    }

    #[test]
    fn the_majority_is_one_of_all_nodes_and_is_decided_as_soon_as_possible() {
        for (nodes, answers, decision) in [
            (3, &[YES][..], Decision::Open),
            (3, &[YES, YES], Decision::Yes),
            (3, &[YES, NO], Decision::Open),
            (3, &[NO, NO], Decision::No),
            (3, &[NO, None], Decision::No),
            (3, &[YES, None, None], Decision::No),
            (3, &[None, None], Decision::No),
            (5, &[YES, YES, None, None], Decision::Open),
            (5, &[YES, YES, None, None, None], Decision::No),
            (5, &[YES, YES, NO, NO, YES], Decision::Yes),
        ] {
            assert_eq!(count(nodes, answers).has_majority(), decision, "{nodes} {answers:?}");
        }
    }

    #[test]
    fn a_round_is_divided_while_nodes_that_granted_and_that_refused_wait_for_others() {
        for (nodes, answers, is_divided) in [
            (3, &[][..], false),
            (3, &[YES], false),
            (3, &[NO], false),
            (3, &[YES, None], false),
            (3, &[NO, NO], false),
            (3, &[YES, YES], false),
            (3, &[YES, NO, None], false),
            (3, &[YES, NO], true),
            (5, &[YES, YES, None], false),
            (5, &[YES, NO, NO, NO], false),
            (5, &[YES, NO], true),
            (5, &[YES, NO, None, YES], true),
        ] {
            assert_eq!(count(nodes, answers).is_divided(), is_divided, "{nodes} {answers:?}");
        }
    }

    #[test]
    fn a_divided_round_ends_soon_after_its_last_answer_whatever_the_distance_of_the_nodes() {
        const MS: Duration = Duration::from_millis(1);
        let short = |taken| Patience::Short.breaks_off_after(taken);
        assert_eq!([Duration::ZERO, MS, 30 * MS].map(short), [5 * MS, 6 * MS, 120 * MS]);
        assert_eq!(Patience::None.breaks_off_after(30 * MS), 30 * MS);
        assert_eq!(Patience::UntilTimeout(500 * MS).breaks_off_after(30 * MS), 500 * MS);
    }

    #[test]
    fn nodes_that_failed_are_counted_neither_as_yes_nor_as_no() {
        assert!(count(3, &[NO, NO]).is_denied() && !count(3, &[NO, None]).is_denied());
        assert!(!count(3, &[NO, None, None]).is_denied() && count(3, &[NO, None, None]).is_out_of_reach());
        assert!(!count(3, &[YES, None]).is_out_of_reach() && !count(3, &[YES, None]).is_definite());
        assert!(count(5, &[YES, NO, NO]).is_definite() && !count(5, &[YES, NO, NO]).is_denied());
    }

    #[test]
    fn a_fence_counts_if_a_majority_minted_it_and_is_raised_otherwise() {
        for (nodes, minted, fence) in [
            (3, &[7][..], None),
            (3, &[7, 7], Some(Fence::Agreed(7))),
            (3, &[7, 9], Some(Fence::ToRaise(9))),
            (3, &[7, 9, 7], Some(Fence::Agreed(7))),
            (5, &[7, 7], None),
            (5, &[7, 7, 8], Some(Fence::ToRaise(8))),
            (5, &[7, 8, 7, 9, 7], Some(Fence::Agreed(7))),
        ] {
            let mut fences = Fences::of(nodes);
            for number in minted {
                fences.add(*number);
            }
            assert_eq!(fences.fence(), fence, "{nodes} {minted:?}");
        }
    }
}
