//! Mistakes of `distlock doctor`: a fault that is not found, or a store that is called broken without being so.

use super::{Edit::Rust, Mutant};

const TRIAL: &str = "bin/distlock/doctor/trial.rs";
const FITNESS: &str = "backend/kits/redis/net/fitness.rs";

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a_doctor_that_believes_in_a_lost_lock",
        edits: &[
            Rust {
                file: TRIAL,
                from: "Err(error) if early.is_zero()",
                to: "Err(error) if mutant!() || early.is_zero()",
            },
            Rust {
                file: TRIAL,
                from: "Ok(_) if !guard.is_valid() => lost(guard, deadline),",
                to: "Ok(_) if mutant!() || !guard.is_valid() => lost(guard, deadline),",
            },
        ],
        caught_by: &["distlock alone::the_doctor_finds_a_store_that_forgets_locks"],
    },
    Mutant {
        name: "a_doctor_that_calls_a_late_renewal_a_broken_exclusion",
        edits: &[Rust {
            file: TRIAL,
            from: "let early = deadline.saturating_duration_since(Instant::now());",
            to: "let early = deadline.saturating_duration_since(Instant::now());
    let early = if mutant!() { LOOK } else { early };",
        }],
        caught_by: &["distlock alone::the_doctor_does_not_call_a_late_renewal_a_broken_exclusion"],
    },
    Mutant {
        name: "a_danger_without_an_exit_status",
        edits: &[Rust {
            file: "bin/distlock/doctor/mod.rs",
            from: "if report.has_danger()",
            to: "if report.has_danger() && !mutant!()",
        }],
        caught_by: &["distlock alone::the_doctor_finds_a_redis_that_evicts"],
    },
    Mutant {
        name: "a_doctor_that_takes_any_clock_for_right",
        edits: &[Rust {
            file: "backend/examination.rs",
            from: "(clock.at_least >= MAX_CLOCK_DIFFERENCE)",
            to: "(clock.at_least >= MAX_CLOCK_DIFFERENCE && !(mutant!() && clock.is_ahead))",
        }],
        caught_by: &["distlock alone::the_doctor_finds_a_clock_that_is_wrong"],
    },
    Mutant {
        name: "a_log_of_writes_is_taken_for_granted",
        edits: &[Rust {
            file: FITNESS,
            from: "let forgets = has_log(info) == Some(false)",
            to: "let forgets = !mutant!() && has_log(info) == Some(false)",
        }],
        caught_by: &["distlock alone::the_doctor_finds_a_redis_that_forgets"],
    },
    Mutant {
        name: "a_doctor_that_takes_one_node_for_all",
        edits: &[Rust {
            file: "backend/kits/unqueued/examine.rs",
            from: "if let Err(error) = check_rights(",
            to: "if !mutant!() && let Err(error) = check_rights(",
        }],
        caught_by: &["distlock alone::the_doctor_finds_a_right_that_one_node_lacks"],
    },
    Mutant {
        name: "a_node_without_a_vote_passes",
        edits: &[Rust {
            file: "backend/kits/unqueued/examine.rs",
            from: "let refusal = service.lacks_vote(&line);",
            to: "let refusal = if mutant!() { None } else { service.lacks_vote(&line) };",
        }],
        caught_by: &["distlock alone::the_doctor_finds_a_node_without_a_vote"],
    },
];
