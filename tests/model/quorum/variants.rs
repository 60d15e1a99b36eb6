//! The table of the variants, and the result that each must have.

use libtest_mimic::Trial;

use super::{
    properties::{E, M, T1, T2, V, X},
    redlock::Redlock,
    variant::{Break, Floor, Form, Variant},
};
use crate::search;

pub(crate) fn all() -> Vec<Trial> {
    let right = right()
        .into_iter()
        .map(|variant| search::holds(format!("quorum::right::{}", variant.name), || Redlock::new(variant)));
    let mutants = mutants().into_iter().map(|mutant| caught("mutant", mutant));
    let long = long().into_iter().map(|variant| {
        let name = format!("quorum::long::{}", variant.name);
        search::holds(name, || Redlock::new(variant)).with_ignored_flag(true)
    });
    let long_mutants =
        long_mutants().into_iter().map(|mutant| caught("long", mutant).with_ignored_flag(true));
    right.chain(mutants).chain(long).chain(long_mutants).collect()
}

fn caught(kind: &str, (variant, property, steps): (Variant, &'static str, usize)) -> Trial {
    let name = format!("quorum::{kind}::{}", variant.name);
    search::is_caught(name, move || Redlock::of_a_mutant(variant.clone()), property, steps)
}

/// Counters at the beginning: equal, and as attempts on a minority leave them.
const UNEQUAL: &[&[u8]] = &[&[], &[1], &[2, 1]];
/// The clocks of all nodes are equal, and proposals are at most one tick ahead of them.
const EQUAL_CLOCKS: Floor = Floor { ticks: 2, slack: 1, ahead: 0 };
const NO_SLACK: Floor = Floor { slack: 0, ..EQUAL_CLOCKS };

fn one_round(name: &'static str) -> Variant {
    Variant::new(name, Form::OneRound, 3, 2)
}

fn two_rounds(name: &'static str) -> Variant {
    Variant::new(name, Form::TwoRounds, 3, 2)
}

/// One client, because the end of a revoked hold concerns no other.
fn revoked(name: &'static str) -> Variant {
    one_round(name).clients(1).counters(UNEQUAL).extensions(2).revocations(1)
}

/// The protocol as designed. Each is searched to the end.
fn right() -> Vec<Variant> {
    vec![
        one_round("one_round").proposals(&[0, 2, 3]).counters(UNEQUAL),
        two_rounds("two_rounds").counters(UNEQUAL),
        two_rounds("two_rounds_executed_twice").executions(2),
        // The second comparison and the choice of nodes are second walls where no acquisition is executed twice.
        one_round("executed_once_needs_no_comparison_of_tokens")
            .proposals(&[0, 2])
            .counters(UNEQUAL)
            .breaking(&[Break::WriteBackByOwner]),
        one_round("write_back_to_all")
            .proposals(&[0, 2])
            .counters(UNEQUAL)
            .breaking(&[Break::WriteBackToAll]),
        one_round("extension").proposals(&[0, 2]).extensions(1),
        two_rounds("extension_in_two_rounds").extensions(1),
        one_round("counters_that_are_kept_need_no_raise")
            .extensions(1)
            .breaking(&[Break::RejoinWithoutRaise, Break::ExtensionOnlyCompares]),
        one_round("extension_heals_a_loss").loss(0).extensions(1).healing(),
        one_round("loss_with_time_floor").proposals(&[1]).floor(EQUAL_CLOCKS).loss(2),
        two_rounds("loss_with_time_floor_in_two_rounds").floor(Floor { ticks: 1, ..NO_SLACK }).loss(1),
        one_round("leases").lease(2).loss(2).healing(),
        one_round("leases_and_two_losses").lease(2).losses(2, 2).healing(),
        one_round("leases_that_are_extended").lease(2).loss(2).extensions(1).healing(),
        two_rounds("leases_in_two_rounds").lease(2).loss(2).healing(),
        one_round("revoked").lease(2).revocations(1),
        revoked("revoked_beside_a_loss").lease(2).loss(2),
        // The scripts as they are, if no acquisition is late enough to bring back a hold.
        revoked("revoked_and_extended_by_owner_within_the_limit")
            .lease(2)
            .limited()
            .extensions(3)
            .breaking(&[Break::ExtensionByOwner]),
    ]
}

/// The same with one rule broken, the property that is violated, and the length of the shortest counter-example.
fn mutants() -> Vec<(Variant, &'static str, usize)> {
    let leased = |name| one_round(name).lease(2);
    vec![
        (one_round("largest_of_incr_gives_twins").breaking(&[Break::NoWriteBack]), T1, 10),
        (one_round("largest_of_incr_falls").counters(&[&[2]]).breaking(&[Break::NoWriteBack]), T2, 9),
        (one_round("write_back_without_compare").breaking(&[Break::WriteBackUncompared]), T1, 14),
        (one_round("write_back_by_owner").executions(2).breaking(&[Break::WriteBackByOwner]), T1, 17),
        (
            two_rounds("write_back_by_owner_in_two_rounds")
                .executions(2)
                .breaking(&[Break::WriteBackByOwner]),
            T1,
            15,
        ),
        (
            one_round("write_back_by_owner_to_all")
                .breaking(&[Break::WriteBackByOwner, Break::WriteBackToAll]),
            T1,
            17,
        ),
        (one_round("largest_granted_where_a_majority_agrees").breaking(&[Break::LargestAtOnce]), T1, 13),
        (two_rounds("equal_reads_granted_at_once").breaking(&[Break::EqualReadsCount]), T1, 9),
        (one_round("loss_without_time_floor_gives_twins").loss(0), T1, 9),
        (one_round("loss_without_time_floor_falls").counters(&[&[2]]).loss(0), T2, 11),
        (one_round("wait_equal_to_the_slack").proposals(&[1]).floor(EQUAL_CLOCKS).loss(1), T1, 10),
        (two_rounds("vote_in_the_tick_of_the_loss").floor(Floor { ticks: 1, ..NO_SLACK }).loss(0), T1, 13),
        (
            one_round("clock_ahead_as_far_as_the_wait")
                .floor(Floor { ticks: 1, ahead: 1, ..NO_SLACK })
                .loss(1),
            T1,
            12,
        ),
        (
            one_round("proposal_beyond_the_slack")
                .proposals(&[3])
                .floor(EQUAL_CLOCKS)
                .loss(2)
                .breaking(&[Break::AnyProposal]),
            T1,
            11,
        ),
        (one_round("rejoined_without_check").extensions(1).breaking(&[Break::RejoinWithoutCheck]), E, 14),
        (one_round("rejoined_after_the_loss_of_a_counter").loss(0).extensions(1), E, 14),
        (
            one_round("rejoined_without_raise")
                .loss(0)
                .extensions(1)
                .healing()
                .breaking(&[Break::RejoinWithoutRaise]),
            T2,
            13,
        ),
        (
            one_round("extension_that_only_compares")
                .counters(&[&[2, 2]])
                .loss(0)
                .extensions(1)
                .healing()
                .breaking(&[Break::ExtensionOnlyCompares]),
            T2,
            16,
        ),
        (leased("validity_from_the_reply").breaking(&[Break::ValidityFromReply]), X, 10),
        (leased("quorum_of_the_reachable").breaking(&[Break::QuorumOfReachable]), X, 6),
        (leased("vote_at_once_after_a_loss").loss(0).healing(), X, 9),
        (leased("vote_before_a_lease_has_passed").loss(1).healing(), X, 10),
        (leased("clock_of_one_node_jumps").jump(), X, 11),
        (
            leased("late_extension_rejoined_before_the_wait_is_over")
                .loss(2)
                .extensions(1)
                .healing()
                .breaking(&[Break::LateExtensionRevives, Break::RejoinWhileWaiting]),
            X,
            14,
        ),
        (one_round("extension_by_owner").extensions(1).breaking(&[Break::ExtensionByOwner]), E, 16),
        (revoked("revoked_and_extended_by_owner").breaking(&[Break::ExtensionByOwner]), V, 14),
        (revoked("extension_of_a_marked_hold").breaking(&[Break::ExtensionOfMarked]), V, 10),
        (revoked("mark_without_a_raise").breaking(&[Break::MarkWithoutRaise]), V, 11),
        (revoked("revoked_by_one_node").breaking(&[Break::RevokedByOne]), V, 9),
        (one_round("mark_without_compare").revocations(1).breaking(&[Break::MarkUncompared]), M, 8),
        (one_round("mark_that_outlives_its_hold").revocations(1).breaking(&[Break::MarkOutlivesHold]), M, 9),
        (leased("mark_that_frees").revocations(1).breaking(&[Break::MarkFrees]), X, 11),
        (revoked("mark_lost_and_wait_shorter_than_a_lease").lease(2).loss(1), V, 12),
        (
            revoked("mark_lost_and_rejoined_before_the_wait_is_over")
                .lease(2)
                .loss(2)
                .breaking(&[Break::RejoinWhileWaiting]),
            V,
            11,
        ),
        (revoked("mark_missing_in_older_data").lease(2).older_data(2), V, 11),
    ]
}

/// A mutant that takes longer, for `tests/run all`.
fn long_mutants() -> Vec<(Variant, &'static str, usize)> {
    vec![(
        one_round("rejoined_before_the_wait_is_over")
            .lease(2)
            .loss(2)
            .extensions(2)
            .healing()
            .breaking(&[Break::RejoinWhileWaiting]),
        X,
        18,
    )]
}

/// For `tests/run all`: twelve minutes on one core and 3 GB.
fn long() -> Vec<Variant> {
    vec![
        one_round("executed_twice").proposals(&[0, 3]).executions(2),
        one_round("three_clients").clients(3).proposals(&[0, 2]),
        two_rounds("three_clients_in_two_rounds").clients(3).counters(UNEQUAL),
        one_round("five_nodes").nodes(5).proposals(&[0, 2, 3]).counters(UNEQUAL),
        two_rounds("five_nodes_in_two_rounds").nodes(5).counters(UNEQUAL),
        one_round("loss_with_time_floor")
            .proposals(&[0, 1])
            .floor(Floor { ticks: 3, ..EQUAL_CLOCKS })
            .loss(2),
        two_rounds("loss_with_time_floor_in_two_rounds").floor(NO_SLACK).loss(1),
        one_round("clock_ahead_less_than_the_wait").floor(Floor { ahead: 1, ..NO_SLACK }).loss(2),
        // A second wall for a client that counts an answer after its deadline.
        one_round("check_for_a_newer_grant_needs_no_deadline")
            .lease(2)
            .loss(2)
            .extensions(1)
            .healing()
            .breaking(&[Break::LateExtensionRevives]),
        // And the check is one for a client that heeds it.
        one_round("deadline_needs_no_check_for_a_newer_grant")
            .lease(2)
            .loss(2)
            .extensions(1)
            .healing()
            .breaking(&[Break::RejoinWithoutCheck]),
        one_round("leases_with_time_floor")
            .lease(2)
            .extensions(1)
            .proposals(&[1])
            .floor(Floor { ticks: 5, ..EQUAL_CLOCKS })
            .loss(2),
        one_round("extended_leases_and_two_losses").lease(2).extensions(2).losses(2, 2).healing(),
        one_round("leases_of_three_ticks").lease(3).extensions(2).loss(3).healing(),
        two_rounds("leases_in_two_rounds").lease(2).extensions(1).loss(2).healing(),
        one_round("leases_of_three_clients").clients(3).lease(2).loss(2).healing(),
        // The deadline is another wall for a client whose extensions compare the owner alone.
        one_round("deadline_needs_no_comparison_of_tokens")
            .lease(2)
            .loss(2)
            .extensions(1)
            .healing()
            .breaking(&[Break::ExtensionByOwner]),
        one_round("revoked").extensions(1).revocations(1),
        one_round("revoked_under_leases").lease(2).loss(2).extensions(1).revocations(1).healing(),
        two_rounds("revoked_in_two_rounds").lease(2).extensions(1).revocations(1),
        one_round("revoked_twice").lease(2).extensions(1).revocations(2),
        revoked("revoked_on_five_nodes").nodes(5).counters(&[&[2, 1]]).lease(2).loss(2),
        revoked("revoked_and_extended_by_owner_within_the_limit")
            .lease(3)
            .limited()
            .extensions(3)
            .loss(3)
            .breaking(&[Break::ExtensionByOwner]),
    ]
}
