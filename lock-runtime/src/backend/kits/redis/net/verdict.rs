//! Decides which of the Redis Sentinels' answers to believe. This module does no I/O.

/// The primary that a Sentinel names, and the number of the failover that made it the primary (`config-epoch`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) address: (String, u16),
    pub(super) epoch: u64,
}

/// What a Sentinel answers when it is asked for the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Primary(Named),
    /// It watches no primary of this name.
    UnknownName,
    /// It has not answered.
    Missing,
}

impl Answer {
    pub(super) fn primary(&self) -> Option<&Named> {
        match self {
            Self::Primary(named) => Some(named),
            Self::UnknownName | Self::Missing => None,
        }
    }
}

/// What the Sentinels' answers amount to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict<'a> {
    Primary(&'a Named),
    /// Most Sentinels watch no primary of this name.
    UnknownName,
    /// Fewer than a majority of the Sentinels named a primary.
    NoMajority {
        named: usize,
    },
    /// The Sentinels that answered know only primaries from before a failover that this process has seen.
    Outdated,
}

/// Returns the number of Sentinels whose answers are needed, of `count`.
pub(super) fn majority(count: usize) -> usize {
    count / 2 + 1
}

/// Judges the answers of all Sentinels in the URL. `known_epoch` is the epoch of the primary that this process last believed in.
///
/// After a failover, the Sentinels learn of the new primary one after the other, and a Sentinel that is cut off from
/// the others does not learn of it. Therefore, the answer with the highest epoch counts, and a majority has to answer:
/// in the part of a divided network in which a Sentinel and the old primary are alone, no majority answers.
pub(super) fn judge(answers: &[Answer], known_epoch: u64) -> Verdict<'_> {
    let needed = majority(answers.len());
    let named: Vec<&Named> = answers.iter().filter_map(Answer::primary).collect();
    let without_the_name = answers.iter().filter(|answer| **answer == Answer::UnknownName).count();
    if named.len() < needed {
        if without_the_name >= needed {
            return Verdict::UnknownName;
        }
        return Verdict::NoMajority { named: named.len() };
    }
    let votes = |of: &Named| named.iter().filter(|other| other.address == of.address).count();
    let latest = named.iter().copied().max_by_key(|named| (named.epoch, votes(named)));
    match latest {
        // Sentinels that were set up anew count epochs from 0 again, and then all of them answer so.
        Some(latest) if latest.epoch < known_epoch && named.len() < answers.len() => Verdict::Outdated,
        Some(latest) => Verdict::Primary(latest),
        None => Verdict::NoMajority { named: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Answer::{Missing, UnknownName},
        *,
    };

    fn named(port: u16, epoch: u64) -> Answer {
        Answer::Primary(Named { address: ("h".into(), port), epoch })
    }

    fn port(answers: &[Answer], known_epoch: u64) -> Option<u16> {
        match judge(answers, known_epoch) {
            Verdict::Primary(named) => Some(named.address.1),
            _ => None,
        }
    }

    #[test]
    fn the_latest_of_a_majority_of_answers_counts() {
        assert_eq!(port(&[named(1, 0), named(1, 0), named(1, 0)], 0), Some(1));
        assert_eq!(port(&[named(1, 4), named(2, 5), named(1, 4)], 4), Some(2), "one has learned of it first");
        assert_eq!(port(&[named(1, 4), named(1, 4), Missing], 4), Some(1));
        assert_eq!(port(&[named(1, 4), named(2, 4), named(2, 4)], 0), Some(2), "of one epoch, most answers");
        assert_eq!(port(&[named(1, 0)], 0), Some(1), "a URL may name one Sentinel");
    }

    #[test]
    fn a_minority_names_no_primary() {
        assert_eq!(judge(&[named(1, 9), Missing, Missing], 0), Verdict::NoMajority { named: 1 });
        assert_eq!(judge(&[named(1, 9), Missing], 0), Verdict::NoMajority { named: 1 });
        assert_eq!(judge(&[named(1, 9), UnknownName, Missing], 0), Verdict::NoMajority { named: 1 });
        assert_eq!(judge(&[Missing], 0), Verdict::NoMajority { named: 0 });
    }

    #[test]
    fn a_name_that_most_do_not_know_is_unknown() {
        assert_eq!(judge(&[UnknownName, UnknownName, Missing], 0), Verdict::UnknownName);
        assert_eq!(judge(&[UnknownName, UnknownName, named(1, 0)], 0), Verdict::UnknownName);
        assert_eq!(port(&[UnknownName, named(1, 0), named(1, 0)], 0), Some(1));
    }

    #[test]
    fn an_answer_from_before_a_known_failover_counts_only_if_all_give_it() {
        assert_eq!(judge(&[named(1, 4), named(1, 4), Missing], 5), Verdict::Outdated);
        assert_eq!(port(&[named(1, 0), named(1, 0), named(1, 0)], 5), Some(1), "set up anew");
    }
}
