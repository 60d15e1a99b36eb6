//! Bugs that other lock libraries shipped, and the tests that would have caught them here.
//!
//! The list comes from the bug reports of about thirty libraries in eight languages. A test is a case of the conformance
//! suite (`group::claim`), or is in the file or the crate that is named before it. `mutant` is the mistake in
//! `tests/mutants` that makes the bug, so that the test is known to be able to fail.

use std::{fs, path::Path};

use libtest_mimic::Trial;
use lock_conformance::case_names;

#[path = "../mutants/table/mod.rs"]
#[allow(dead_code, reason = "the changes of the mutants are not used here")]
mod mutants;

#[derive(Clone, Copy)]
struct Bug {
    what: &'static str,
    tests: &'static [&'static str],
    mutant: &'static str,
}

const RENEWAL: &[Bug] = &[
    Bug {
        what: "renewal outlives an unlock that raced its registration",
        tests: &[
            "lease::nothing_is_sent_for_a_hold_that_is_over",
            "lease::a_release_that_races_a_renewal_ends_the_hold",
            "lock-runtime a_renewal_on_its_way_does_not_outlive_the_release",
        ],
        mutant: "renewal_outlives_the_hold",
    },
    Bug {
        what: "renewal is alive after a dropped acquire",
        tests: &[
            "lease::nothing_is_sent_for_a_hold_that_is_over",
            "cancellation::acquire_of_a_free_lock",
            "cancellation::at_any_moment_in_time",
        ],
        mutant: "renewal_outlives_the_hold",
    },
    Bug {
        what: "renewal is not resumed after one failure",
        tests: &[
            "outage::black_hole::an_outage_shorter_than_the_lease_costs_nothing",
            "reconnect::connections_that_went_mute_cost_no_lease",
            "lock-runtime renewals_that_fail_for_a_while_are_made_up_for",
        ],
        mutant: "renewal_not_resumed",
    },
    Bug {
        what: "one slow node or key starves the renewal of others",
        tests: &[
            "tests/servers/redis a_server_that_stands_still_delays_no_renewal_on_another",
            "interop::a_name_under_which_something_else_is_kept_is_an_error_in_words",
            "lease::a_crowd_that_locks_does_not_starve_renewal",
            "lock-runtime a_renewal_that_hangs_delays_no_other",
            "lock-runtime a_hold_that_is_almost_lost_does_not_cut_off_the_renewal_of_another",
        ],
        mutant: "one_renewal_after_the_other",
    },
    Bug {
        what: "a hundred thousand held locks are not renewed in time",
        tests: &[
            "tests/servers/redis a_hundred_thousand_held_locks_are_all_renewed",
            "tests/servers/redis ten_thousand_held_locks_are_all_renewed",
            "lease::many_held_locks_are_all_renewed",
        ],
        mutant: "a_round_trip_for_each_renewal",
    },
    Bug {
        what: "renewal takes over a lock that another client holds by now",
        tests: &["lease::a_lock_that_the_store_lost_is_noticed_by_renewal_and_not_taken_back"],
        mutant: "renewal_without_owner",
    },
];

const LOSS: &[Bug] = &[
    Bug {
        what: "the signal comes after the end of the lease instead of before it, under a black hole",
        tests: &[
            "outage::black_hole::loss_is_signalled_before_the_lease_ends",
            "paused::a_holder_paused_beyond_its_lease_knows_it_at_once_and_spares_the_successor",
        ],
        mutant: "loss_when_the_store_says_so",
    },
    Bug {
        what: "no allowance for clocks that drift apart",
        tests: &["lease::without_renewal_the_lock_is_lost_within_its_ttl"],
        mutant: "no_drift",
    },
    Bug {
        what: "the lease counts from the answer: 5 s for it, and a ttl of 6 s",
        tests: &[
            "lease::the_lease_counts_from_before_the_request",
            "lease::an_answer_that_comes_too_late_to_be_of_use_is_given_back",
        ],
        mutant: "deadline_from_the_answer",
    },
    Bug {
        what: "a renewed lease counts from the answer",
        tests: &["lease::a_renewal_counts_from_before_its_request"],
        mutant: "renewal_from_the_answer",
    },
    Bug {
        what: "a pushed lease counts from its arrival",
        tests: &["reconnect::a_grant_that_is_told_late_lets_nobody_in"],
        mutant: "push_from_its_arrival",
    },
    Bug {
        what: "the holder's wall clock jumps",
        tests: &["clocks::a_jump_of_the_holder_s_clock_neither_ends_its_lease_nor_makes_it_longer"],
        mutant: "wall_clock",
    },
    Bug {
        what: "the body runs without the lock after the wait ran out",
        tests: &[
            "attribute::a_body_does_not_run_when_the_wait_for_its_lock_runs_out",
            "attribute_under_faults::no_body_runs_without_its_lock_nor_beside_another",
        ],
        mutant: "the_body_runs_although_the_wait_ran_out",
    },
    Bug {
        what: "the lock is released, or the store gives it away, while the body still runs",
        tests: &[
            "loss::a_body_is_gone_before_another_enters_when_max_hold_is_over",
            "loss::a_body_is_gone_before_another_enters_when_its_lease_is_over",
            "loss::a_body_is_gone_before_another_enters_when_another_of_its_locks_is_lost",
            "loss::black_hole::a_body_is_gone_before_another_enters_when_its_lease_cannot_be_renewed",
        ],
        mutant: "the_body_goes_after_its_lock",
    },
    Bug {
        what: "a hold is handed out without another check after the wait",
        tests: &[
            "lease::an_answer_that_comes_too_late_to_be_of_use_is_given_back",
            "lock-runtime a_turn_that_was_lost_before_its_waiter_woke_is_not_handed_out",
        ],
        mutant: "no_check_after_the_wait",
    },
    Bug {
        what: "the body's result is replaced by an error of the release",
        tests: &[
            "outage::black_hole::a_body_keeps_its_result_although_its_release_fails",
            "lock-runtime a_body_keeps_its_result_although_its_release_fails",
        ],
        mutant: "a_failed_release_replaces_the_result",
    },
];

const OWNERSHIP: &[Bug] = &[
    Bug {
        what: "one token per lock object, so that a stale holder frees its successor",
        tests: &[
            "ownership::an_owner_is_known_by_another_name_each_time",
            "ownership::a_lost_guard_does_not_release_a_later_hold_of_the_same_client",
        ],
        mutant: "one_owner_token_for_all_attempts",
    },
    Bug {
        what: "a release without a check of the owner",
        tests: &[
            "ownership::a_drop_after_the_end_of_the_lease_spares_the_successor",
            "ownership::a_release_after_the_end_of_the_lease_says_lost_and_spares_the_successor",
        ],
        mutant: "release_without_owner_check",
    },
    Bug {
        what: "a late retry of a release removes a newer hold",
        tests: &[
            "ownership::a_repeated_release_spares_the_successor",
            "ownership::a_release_that_arrives_late_spares_the_successor",
        ],
        mutant: "release_without_owner_check",
    },
    Bug {
        what: "an acquire on a held object orphans the first hold",
        tests: &["ownership::a_lock_asked_for_again_keeps_its_first_hold"],
        mutant: "one_owner_token_for_all_attempts",
    },
    Bug {
        what: "the key is computed again at the release",
        tests: &["attribute::the_key_is_computed_once_and_freed_as_it_was_taken"],
        mutant: "the_key_is_computed_again",
    },
    Bug {
        what: "(\"a:b\", \"c\") is (\"a\", \"b:c\")",
        tests: &[
            "lock-runtime different_values_never_give_one_name",
            "lock-runtime placeholders_need_a_separator_that_values_cannot_contain",
        ],
        mutant: "values_keep_their_colons",
    },
    Bug {
        what: "data kept alongside a lock lies in another slot",
        tests: &[
            "lock-runtime what_is_kept_beside_a_holder_stays_under_the_prefix_and_in_its_slot",
            "lock-runtime a_hash_tag_of_its_own_is_kept",
        ],
        mutant: "another_slot_for_what_is_kept_beside_a_lock",
    },
    Bug {
        what: "tokens repeat after all data was lost, or fall when the server's clock is set back",
        tests: &[
            "fencing::tokens_rise_after_all_data_was_lost",
            "clocks::tokens_rise_through_jumps_of_the_server_s_clock",
        ],
        mutant: "tokens_are_counted",
    },
];

const WAITERS: &[Bug] = &[
    Bug {
        what: "a release between the failed try and the subscription is missed",
        tests: &["wait::a_release_while_a_waiter_begins_to_wait_is_not_missed"],
        mutant: "subscribes_after_the_check",
    },
    Bug {
        what: "a crashed holder sends no message, and the waiter sleeps forever",
        tests: &[
            "killed::a_waiter_enters_when_the_lease_of_a_killed_process_ends",
            "interop::a_release_by_a_foreign_holder_lets_a_waiter_in",
        ],
        mutant: "nobody_looks_by_itself",
    },
    Bug {
        what: "a woken waiter dies, and no other is woken",
        tests: &[
            "killed::a_waiter_killed_with_its_grant_keeps_the_next_one_for_a_bounded_time",
            "cancellation::acquire_while_the_lock_is_being_granted_by_another_client",
        ],
        mutant: "a_dead_waiter_has_its_whole_lease",
    },
    Bug {
        what: "a dead waiter in a fair queue costs minutes",
        tests: &[
            "killed::a_killed_waiter_keeps_the_next_one_for_a_bounded_time",
            "killed::a_crowd_of_killed_waiters_keeps_the_next_one_for_a_bounded_time",
            "paused::a_paused_waiter_keeps_the_next_one_for_a_bounded_time_and_goes_on_later",
        ],
        mutant: "a_dead_waiter_has_its_whole_lease",
    },
    Bug {
        what: "a live waiter is dropped from the queue",
        tests: &["wait::a_waiter_that_waits_for_long_keeps_its_place"],
        mutant: "live_waiters_are_dropped",
    },
    Bug {
        what: "no subscription is renewed after a reconnect",
        tests: &[
            "reconnect::forgets_caches::a_waiter_gets_the_lock",
            "reconnect::cut::a_waiter_gets_the_lock",
            "reconnect::cut::waiters_get_the_lock_while_it_happens_again_and_again",
        ],
        mutant: "nobody_looks_after_a_reconnect",
    },
    Bug {
        what: "a timeout at the very instant of the grant loses the lock",
        tests: &[
            "wait::a_timeout_at_the_instant_of_the_grant_loses_neither_the_lock_nor_the_turn",
            "lock-runtime a_waiter_that_runs_out_of_time_takes_a_call_that_came_at_that_instant",
        ],
        mutant: "a_call_at_the_end_of_the_wait_is_ignored",
    },
    Bug {
        what: "fifty waiting processes are a herd",
        tests: &["wait::fifty_processes_that_wait_are_no_herd"],
        mutant: "a_release_wakes_the_herd",
    },
    Bug {
        what: "a failed try is unlocked too: 195 commands per entry with 1,000 waiters",
        tests: &["wait::a_failed_attempt_sends_nothing_after_it"],
        mutant: "a_failed_try_is_released_too",
    },
    Bug {
        what: "an acquire that was given up holds the lock, or a place, forever",
        tests: &[
            "cancellation::acquire_of_a_free_lock",
            "cancellation::acquire_of_a_lock_that_another_client_holds",
            "outage::requests_held::an_acquire_that_failed_leaves_nothing",
        ],
        mutant: "nothing_is_cleaned_up",
    },
];

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("bugs::each_has_tests_that_exist", || {
            each_has_tests_that_exist();
            Ok(())
        }),
        Trial::test("bugs::each_mutant_is_caught_by_tests_that_exist", || {
            each_mutant_is_caught_by_tests_that_exist();
            Ok(())
        }),
    ]
}

fn exists(test: &str, cases: &[String]) -> bool {
    match test.split_once(' ') {
        Some((place, function)) => {
            stands_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join(place), &format!("fn {function}("))
        }
        None => cases.iter().any(|case| case == test),
    }
}

/// Whether the text occurs in the file, or anywhere in the folder.
fn stands_in(place: &Path, text: &str) -> bool {
    match fs::read_dir(place) {
        Ok(entries) => entries.flatten().any(|entry| stands_in(&entry.path(), text)),
        Err(_) => fs::read_to_string(place).is_ok_and(|all| all.contains(text)),
    }
}

fn each_has_tests_that_exist() {
    let cases = case_names();
    for bug in [RENEWAL, LOSS, OWNERSHIP, WAITERS].concat() {
        assert!(!bug.tests.is_empty(), "no test: {}", bug.what);
        for test in bug.tests {
            assert!(exists(test, &cases), "{}: there is no test {test}", bug.what);
        }
        let mutant = mutants::mutants().find(|mutant| mutant.name == bug.mutant);
        let mutant = mutant.unwrap_or_else(|| panic!("{}: there is no mutant {}", bug.what, bug.mutant));
        // By its last part: the paths of unit tests and of cases differ.
        let last = |test: &str| test.rsplit([':', ' ']).next().unwrap_or_default().to_owned();
        let caught = |test: &str| mutant.caught_by.iter().any(|by| last(by) == last(test));
        assert!(
            bug.tests.iter().any(|test| caught(test)),
            "{}: {} is caught by other tests than the named ones",
            bug.what,
            bug.mutant
        );
    }
}

fn each_mutant_is_caught_by_tests_that_exist() {
    let (cases, stores) = (case_names(), crate::stores::known(|file| file.is_compiled_in));
    for mutant in mutants::mutants() {
        for test in mutant.caught_by {
            // The mutants' own run shows whether there is such a test elsewhere.
            let found = test.contains(' ')
                || test.split_once("::").is_some_and(|(store, case)| {
                    stores.iter().any(|known| known.name() == store) && exists(case, &cases)
                });
            assert!(found, "{}: there is no test {test}", mutant.name);
        }
    }
}
