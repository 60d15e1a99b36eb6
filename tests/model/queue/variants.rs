//! The table of the variants, and the result that each must have.

use libtest_mimic::Trial;

use super::{
    handover::Handover,
    properties::{L, P, R1, R2, R3, S1, S2, S3, V, W},
    variant::{Break, Role, Times, Variant},
    wait,
};
use crate::search;

/// The shortest distinguishable durations: a place can age, a grant is shorter than a lease.
const SHORT: Times = Times::new(3, 2, 2);
/// As in the store, the claim window is longer than the refresh interval, and three of those make a place stale.
const LONG: Times = Times::new(4, 2, 3);
/// For variants that would otherwise have too many states.
const SHORTEST: Times = Times::new(2, 1, 1);

pub(crate) fn all() -> Vec<Trial> {
    let right = right()
        .into_iter()
        .map(|variant| search::holds(format!("queue::right::{}", variant.name), || Handover::new(variant)));
    let mutants = mutants().into_iter().map(|(variant, property, steps)| {
        let name = format!("queue::mutant::{}", variant.name);
        search::is_caught(name, move || Handover::new(variant.clone()), property, steps)
    });
    let long = long().into_iter().map(|variant| {
        let name = format!("queue::long::{}", variant.name);
        search::holds(name, || Handover::new(variant)).with_ignored_flag(true)
    });
    right.chain(mutants).chain(wait::all()).chain(long).collect()
}

/// The protocol as built, and the loosest one that the rules allow. Each is searched to the end.
fn right() -> Vec<Variant> {
    let own = Role::own;
    vec![
        Variant::new("two_rounds", SHORT, &[own(2, 1), own(2, 1)]),
        Variant::new("late_requests_of_attempts_that_ended", SHORT, &[own(1, 1), own(2, 2)]),
        Variant::new("longer_times", LONG, &[own(1, 2), own(2, 1)]),
        Variant::new("three_clients", SHORT, &[own(1, 1), own(1, 1), own(1, 1)]),
        Variant::new("tries_beside_the_queue", SHORT, &[own(2, 1).tries(), own(1, 1).tries()]),
        Variant::new("crashes", LONG, &[own(1, 2), own(1, 2)]).crashes(1),
        Variant::new("releases_sent_twice", SHORT, &[own(1, 2).repeats(), own(2, 1).repeats()]),
        Variant::new("left_open_for_a_foreign_client", SHORT, &[own(1, 1), own(1, 1), Role::FOREIGN]).opens(),
        Variant::new(
            "left_open_without_an_end",
            SHORTEST,
            &[own(Role::UNLIMITED, 1), own(Role::UNLIMITED, 1)],
        )
        .opens(),
        Variant::new("groups", SHORT, &[own(2, 1).groups(), own(1, 1).groups()]),
        Variant::new("groups_beside_lone_calls", SHORT, &[own(1, 2).groups(), own(2, 1)]).opens(),
        Variant::new("cohorts", SHORT, &[own(1, 2).followers(2), own(1, 2).followers(2)]),
        Variant::new("drift_within_the_margin", LONG.margin(1), &[own(1, 2).slack(1), own(1, 2).slack(1)]),
        Variant::new("attacker", SHORT, &[own(1, 2), own(2, 1)]).attacked().opens(),
        Variant::new("attacker_and_loose_client", SHORTEST, &[own(1, 1), own(1, 1)]).attacked().loose(),
        Variant::new("early_limits", SHORT, &[own(1, 1).groups(), own(2, 1)]).early_limits(),
        Variant::new("revoked", SHORT, &[own(1, 2), own(1, 1)]).revocations(1),
        Variant::new("revoked_in_groups_and_cohorts", SHORT, &[own(1, 2).groups().followers(1), own(1, 1)])
            .revocations(1)
            .opens(),
        // Requests are refused after their limit so that a release is the end of an attempt; nothing else needs it.
        Variant::new("no_limits", SHORT.unlimited(), &[own(1, 2), own(2, 1)]),
        // Three comparisons are a second wall: the client as built never needs them.
        Variant::new("strict_client_needs_no_second_wall", SHORT, &[own(1, 2), own(2, 1)]).breaking(&[
            Break::StalePushCounts,
            Break::RenewWithoutFence,
            Break::JoinTwice,
        ]),
        Variant::new("loose_client", SHORT.unlimited(), &[own(1, 1), own(1, 1)]).loose(),
        Variant::new("loose_client_asks_again", SHORTEST.unlimited(), &[own(1, 2), own(1, 2)]).loose(),
    ]
}

/// The same with one rule broken, the property that is violated, and the length of the shortest counter-example.
fn mutants() -> Vec<(Variant, &'static str, usize)> {
    let own = Role::own;
    let two = |name, broken| Variant::new(name, SHORT, &[own(1, 2), own(2, 1)]).breaking(broken);
    let loose = |name, broken| {
        Variant::new(name, SHORTEST.unlimited(), &[own(1, 2), own(2, 1)]).breaking(broken).loose()
    };
    let cohort =
        |name, broken| Variant::new(name, SHORT, &[own(1, 2).followers(1), own(1, 2)]).breaking(broken);
    let grouped =
        |name, broken| Variant::new(name, SHORT, &[own(1, 2).groups(), own(2, 1).groups()]).breaking(broken);
    vec![
        (two("deadline_from_the_arrival_of_the_push", &[Break::DatedByArrival]), S1, 13),
        (two("deadline_from_the_last_poll_sent", &[Break::DatedByLastPoll]), S1, 14),
        (two("deadline_from_the_arrival_of_the_answer", &[Break::DatedByAnswer]), S1, 13),
        (two("release_without_compare", &[Break::ReleaseUncompared]), S3, 5),
        (two("release_without_a_look_at_the_queue", &[Break::ReleaseBlind]), P, 7),
        (two("leave_without_release", &[Break::LeaveWithoutRelease]), R1, 4),
        (two("renewal_without_compare", &[Break::RenewUncompared]), S3, 9),
        (two("grant_without_px", &[Break::GrantForEver]), L, 5),
        (two("nobody_looks_for_an_expired_lease", &[Break::PollLooksAway]), L, 4),
        (two("fence_counted_beside_set_nx", &[Break::MintBesideSet]), S2, 7),
        (
            two(
                "vanished_place_made_anew_and_old_push_believed",
                &[Break::PollQueuesAgain, Break::StalePushCounts],
            ),
            S1,
            16,
        ),
        (loose("old_push_believed_after_asking_again", &[Break::StalePushCounts]), S1, 14),
        (loose("asking_again_queues_twice", &[Break::JoinTwice]), R2, 4),
        (loose("renewal_without_fence", &[Break::RenewWithoutFence]), S2, 15),
        (cohort("lease_passed_on_with_a_fence_of_the_store", &[Break::PassUnreserved]), S2, 9),
        (cohort("lease_passed_on_after_its_release", &[Break::PassAfterRelease]), S1, 8),
        (cohort("lease_passed_on_before_the_turn_is_over", &[Break::PassBeforeEnd]), S1, 4),
        (two("left_open_and_nobody_told", &[Break::OpenInSilence]).opens(), P, 6),
        (two("left_open_and_taken_without_asking", &[Break::FreeIsAGrant]).opens(), S1, 13),
        (two("open_window_ended_by_own_calls", &[Break::WindowIgnored]).opens(), W, 8),
        (two("late_execution_granted", &[Break::LateGranted]), R3, 6),
        (two("release_that_is_final_before_the_limit", &[Break::FinalBeforeTheLimit]), R3, 4),
        (two("waiter_enters_after_its_eviction", &[Break::EntersAfterEviction]), S1, 13),
        (two("push_without_proof", &[Break::PushWithoutProof]).attacked(), S1, 7),
        (two("secret_on_the_wire", &[Break::SecretOnTheWire]).attacked(), S1, 13),
        (two("proof_does_not_cover_the_terms", &[Break::ProofWithoutTerms]).attacked(), S1, 13),
        (two("secret_in_free", &[Break::SecretInFree]).attacked().opens(), S1, 13),
        (grouped("fence_that_two_groups_share", &[Break::GroupTakesLastFence]), S2, 8),
        (grouped("group_releases_without_a_look_at_the_queue", &[Break::GroupReleasesBlind]), P, 7),
        (grouped("group_releases_without_compare", &[Break::GroupReleasesUncompared]), S3, 10),
        (two("revocation_that_frees", &[Break::RevocationFrees]).revocations(1), S1, 8),
        (two("revocation_without_compare", &[Break::RevokesUncompared]).revocations(1), S3, 8),
        (two("renewal_of_a_revoked_hold", &[Break::RenewsRevoked]).revocations(1), V, 7),
        (two("claim_of_a_revoked_grant", &[Break::ClaimsRevoked]).revocations(1), V, 11),
        (two("release_that_misses_a_revoked_hold", &[Break::ReleaseMissesRevoked]).revocations(1), R1, 6),
        (Variant::new("drift_without_margin", LONG, &[own(1, 2).slack(1), own(1, 2).slack(1)]), S1, 10),
    ]
}

/// For `tests/run all`: ten minutes and 2 GB.
fn long() -> Vec<Variant> {
    let own = Role::own;
    vec![
        Variant::new("two_rounds", SHORT, &[own(2, 2), own(2, 2)]),
        Variant::new("two_rounds_longer_times", LONG, &[own(1, 2), own(2, 2)]),
        Variant::new("without_an_end", SHORT, &[own(Role::UNLIMITED, 1), own(Role::UNLIMITED, 1)]),
        Variant::new("three_clients_and_a_crash", LONG, &[own(1, 1), own(1, 1), own(1, 1)]).crashes(1),
        Variant::new("left_open_for_a_foreign_client", SHORT, &[own(1, 2), own(1, 2), Role::FOREIGN])
            .opens()
            .crashes(1),
        Variant::new("tries_and_late_requests", SHORT, &[own(1, 1).tries(), own(2, 2).tries()]),
        Variant::new("groups", SHORT, &[own(2, 1).groups(), own(2, 1).groups()]),
        Variant::new("cohorts", SHORT, &[own(1, 2).followers(2), own(2, 1).followers(2)]),
        Variant::new("drift_within_the_margin", LONG.margin(1), &[own(1, 2).slack(1), own(2, 1).slack(1)]),
        Variant::new("attacker", LONG, &[own(1, 2), own(2, 1)]).attacked().opens(),
        Variant::new("attacker_beside_a_foreign_client", SHORT, &[own(1, 1), own(1, 1), Role::FOREIGN])
            .attacked()
            .opens(),
        Variant::new("attacker_and_loose_client", SHORT, &[own(1, 2), own(1, 1)]).attacked().loose(),
        Variant::new("early_limits", LONG, &[own(1, 2), own(2, 1)]).early_limits().opens(),
        Variant::new("revoked", SHORT, &[own(1, 2), own(2, 1)]).revocations(1),
        Variant::new("revoked_twice_beside_a_crash", SHORT, &[own(1, 1), own(1, 1)])
            .revocations(2)
            .crashes(1),
        Variant::new("no_limits", LONG.unlimited(), &[own(1, 2), own(2, 1)]),
        Variant::new("loose_client", SHORT.unlimited(), &[own(1, 2), own(1, 1)]).loose(),
        Variant::new("loose_client_within_limits", SHORTEST, &[own(1, 2), own(1, 2)]).loose(),
        Variant::new("loose_client_two_rounds", SHORTEST.unlimited(), &[own(1, 2), own(2, 1)]).loose(),
    ]
}
