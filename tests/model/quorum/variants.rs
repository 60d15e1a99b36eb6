//! The table of the variants, and the result that each must have.

use libtest_mimic::Trial;

use super::{
    properties::{E, T1, T2, X},
    redlock::Redlock,
    variant::{Break, Floor, Form, Variant},
};
use crate::search;

pub(crate) fn all() -> Vec<Trial> {
    let right = right()
        .into_iter()
        .map(|variant| search::holds(format!("quorum::right::{}", variant.name), || Redlock::new(variant)));
    let mutants = mutants().into_iter().map(|(variant, property, steps)| {
        let name = format!("quorum::mutant::{}", variant.name);
        search::is_caught(name, move || Redlock::of_a_mutant(variant.clone()), property, steps)
    });
    let long = long().into_iter().map(|variant| {
        let name = format!("quorum::long::{}", variant.name);
        search::holds(name, || Redlock::new(variant)).with_ignored_flag(true)
    });
    right.chain(mutants).chain(long).collect()
}

fn right() -> Vec<Variant> {
    use Form::{OneRound, TwoRounds};
    let floor = |ticks, slack, ahead| Floor { ticks, slack, ahead };
    vec![
        Variant::new("floor_two_rounds", TwoRounds, 3, 2).floor(floor(2, 0, 0)).loss(1),
        Variant::new("floor_one_round", OneRound, 3, 2).proposals(&[0, 1]).floor(floor(3, 1, 0)).loss(2),
    ]
}

fn mutants() -> Vec<(Variant, &'static str, usize)> {
    use Form::{OneRound, TwoRounds};
    let floor = |ticks, slack, ahead| Floor { ticks, slack, ahead };
    let one = |name| Variant::new(name, OneRound, 3, 2);
    let two = |name| Variant::new(name, TwoRounds, 3, 2);
    vec![
        (one("loss_without_time_floor").loss(0), T1, 0),
        (one("loss_without_time_floor2").loss(0), T2, 0),
        (one("wait_equal_to_the_slack").proposals(&[1]).floor(floor(2, 1, 0)).loss(1), T1, 0),
        (one("wait_equal_to_the_slack2").proposals(&[1]).floor(floor(2, 1, 0)).loss(1), T2, 0),
        (
            one("proposal_ahead")
                .proposals(&[3])
                .floor(floor(3, 1, 0))
                .loss(2)
                .breaking(&[Break::AnyProposal]),
            T1,
            0,
        ),
        (two("two_rounds_no_wait").floor(floor(2, 0, 0)).loss(0), T1, 0),
        (two("clock_ahead").floor(floor(3, 0, 1)).loss(1), T1, 0),
        (one("max_of_incr").breaking(&[Break::NoWriteBack]), T1, 0),
        (one("max_of_incr2").breaking(&[Break::NoWriteBack]), T2, 0),
        (one("uncompared").breaking(&[Break::WriteBackUncompared]), T1, 0),
        (one("uncompared2").breaking(&[Break::WriteBackUncompared]), T2, 0),
        (one("largest_at_once").breaking(&[Break::LargestAtOnce]), T1, 0),
        (two("equal_reads").breaking(&[Break::EqualReadsCount]), T1, 0),
        (one("to_all_by_owner").breaking(&[Break::WriteBackByOwner, Break::WriteBackToAll]), T1, 0),
    ]
}

fn long() -> Vec<Variant> {
    vec![]
}
