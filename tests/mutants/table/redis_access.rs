//! Mistakes about the connections, users and names of a Redis server.

use super::{
    Edit::{Rust, Script},
    Mutant,
};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a_missing_right_to_the_time_has_no_name",
        edits: &[Script { from: "local t = redis.pcall('TIME')", to: "local t = redis.call('TIME')" }],
        caught_by: &["servers redis::permissions::each_permission_that_is_missing_is_named"],
    },
    Mutant {
        name: "renewals_are_failed_by_one_of_their_names",
        edits: &[Rust {
            file: "backend/stores/redis/mod.rs",
            from: "if answer.as_ref().is_err_and(is_of_one) && part.len() > 1 {",
            to: "if answer.as_ref().is_err_and(is_of_one) && part.len() > 1 && !mutant!() {",
        }],
        caught_by: &[
            "servers redis::permissions::a_name_that_is_forbidden_while_it_is_held_ends_no_other_lease",
        ],
    },
    Mutant {
        name: "readonly_kept",
        edits: &[Rust {
            file: "backend/kits/redis/net/connection.rs",
            from: "Refusal::ReadOnly => (\"its server is a replica\", PAUSE),",
            to: "Refusal::ReadOnly => (\"\", if mutant!() { Duration::from_secs(600) } else { PAUSE }),",
        }],
        caught_by: &[
            "servers redis::failover::a_demoted_primary_is_left_and_what_was_held_is_kept",
            "servers redis::failover::what_a_demoted_primary_refuses_is_repeated_over_a_new_connection",
        ],
    },
    Mutant {
        name: "another_slot_for_what_is_kept_beside_a_lock",
        edits: &[Rust {
            file: "backend/kits/redis/format.rs",
            from: "            HashTag::Tag | HashTag::Malformed =>",
            to: "            HashTag::None if mutant!() => write!(f, \"{stored}:~{FORMAT}:{what}\"),
            HashTag::Tag | HashTag::Malformed =>",
        }],
        caught_by: &[
            "unit backend::kits::redis::format::tests::what_is_kept_beside_a_holder_stays_under_the_prefix_and_in_its_slot",
        ],
    },
    Mutant {
        name: "a_user_without_a_password_is_the_default_user",
        edits: &[
            Rust {
                file: "backend/kits/redis/config.rs",
                from: "        Some(user) if !user.is_empty()",
                to: "        Some(user) if !mutant!() && !user.is_empty()",
            },
            Rust {
                file: "backend/kits/redis/config.rs",
                from: "            if !parts.credentials.is_some_and(",
                to: "            if !mutant!() && !parts.credentials.is_some_and(",
            },
        ],
        caught_by: &[
            "servers redis::urls::a_user_with_an_empty_password_is_that_user_and_one_without_is_refused",
        ],
    },
    Mutant {
        name: "the_name_of_a_connection_needs_a_permission",
        edits: &[Rust {
            file: "backend/kits/redis/net/connection.rs",
            from: "    let mut call = redis::cmd(\"HELLO\");
    call.arg(3).arg(\"SETNAME\")",
            to: "    let mut call = redis::cmd(if mutant!() { \"CLIENT\" } else { \"HELLO\" });
    if !mutant!() {
        call.arg(3);
    }
    call.arg(\"SETNAME\")",
        }],
        caught_by: &[
            "servers redis::names::a_user_who_may_not_name_connections_has_named_ones_and_no_refusal_in_the_log",
        ],
    },
];
