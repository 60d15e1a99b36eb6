//! Mistakes of `distlock doctor` at PostgreSQL and ZooKeeper: a fault that is not found.

use super::{Edit::Rust, Mutant};

const POSTGRES: &str = "backend/kits/postgres/examine.rs";
const ZOOKEEPER: &str = "backend/stores/zookeeper/examine.rs";

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a_doctor_that_does_not_see_a_pooler",
        edits: &[Rust {
            file: POSTGRES,
            from: "Ok(Found::Notified(_)) => None,",
            to: "Ok(Found::Notified(_)) => None,
        Ok(Found::Pooled) if mutant!() => None,",
        }],
        caught_by: &["distlock doctor::postgres::notifications_that_do_not_arrive_are_found"],
    },
    Mutant {
        name: "a_doctor_that_sees_one_table_only",
        edits: &[Rust {
            file: POSTGRES,
            from: ".filter(|_| !config.table.has_schema())",
            to: ".filter(|_| !config.table.has_schema() && !mutant!())",
        }],
        caught_by: &[
            "distlock doctor::postgres::a_table_that_locks_cannot_use_is_found",
            "distlock doctor::postgres_advisory::each_fault_is_found",
        ],
    },
    Mutant {
        name: "a_doctor_that_takes_a_commit_for_durable",
        edits: &[Rust {
            file: POSTGRES,
            from: ".filter(|_| connections.fitness.outlives)?",
            to: ".filter(|_| connections.fitness.outlives && !mutant!())?",
        }],
        caught_by: &["distlock doctor::postgres::a_server_that_may_lose_commits_is_found"],
    },
    Mutant {
        name: "a_doctor_that_leaves_the_keepalive_to_the_system",
        edits: &[Rust {
            file: POSTGRES,
            from: "!keepalive.is_zero() && keepalive < timeout",
            to: "!keepalive.is_zero() && keepalive < timeout && !mutant!()",
        }],
        caught_by: &[
            "unit backend::kits::postgres::examine::tests::a_system_that_ends_the_session_of_a_silent_host_too_early_is_a_danger",
            "distlock doctor::postgres_advisory::each_fault_is_found",
        ],
    },
    Mutant {
        name: "a_missing_right_that_is_no_fault_of_the_configuration",
        edits: &[Rust {
            file: "bin/distlock/doctor/mod.rs",
            from: "let Some(fault) = error.fault() else",
            to: "let Some(fault) = error.fault().filter(|fault| fault.name() != \"rights\" || !mutant!()) else",
        }],
        caught_by: &["distlock doctor::postgres::rights_that_are_missing_are_found"],
    },
    Mutant {
        name: "a_doctor_that_takes_any_session_for_long_enough",
        edits: &[Rust {
            file: ZOOKEEPER,
            from: "&& granted < tick * LEAST_TICKS",
            to: "&& granted < tick * LEAST_TICKS
            && !mutant!()",
        }],
        caught_by: &[
            "unit backend::stores::zookeeper::examine::tests::a_session_that_is_too_short_for_the_tick_is_a_danger",
            "distlock doctor::zookeeper::a_tick_that_does_not_suit_the_session_is_found",
        ],
    },
    Mutant {
        name: "a_doctor_that_does_not_miss_a_silent_member",
        edits: &[Rust {
            file: ZOOKEEPER,
            from: "        Answer::Silence => {",
            to: "        Answer::Silence if mutant!() => {}
        Answer::Silence => {",
        }],
        caught_by: &["distlock doctor::zookeeper::a_member_that_is_away_is_found"],
    },
    Mutant {
        name: "a_doctor_that_does_not_try_to_create_a_node",
        edits: &[Rust {
            file: ZOOKEEPER,
            from: "if index == of_the_end => {}",
            to: "if index == of_the_end || mutant!() => {}",
        }],
        caught_by: &["distlock doctor::zookeeper::permissions_that_are_missing_are_found"],
    },
];
