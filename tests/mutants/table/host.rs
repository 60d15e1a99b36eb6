//! Mistakes about the process, its threads and its runtimes.

use super::{Edit::Rust, Mutant};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a_forked_child_counts_as_its_parent",
        edits: &[
            Rust {
                file: "process.rs",
                from: "        self == Self::this()",
                to: "        self == Self::this() || mutant!()",
            },
            Rust {
                file: "process.rs",
                from: "        if self == this {",
                to: "        if self == this || mutant!() {",
            },
        ],
        caught_by: &[
            "unit process::tests::a_forked_child_acquires_nothing_and_its_guards_are_not_valid",
            "unit process::tests::an_acquisition_that_is_under_way_in_a_forked_child_is_refused",
        ],
    },
    Mutant {
        name: "any_runtime_will_do",
        edits: &[Rust {
            file: "caller.rs",
            from: "    let missing = match parts() {",
            to: "    let missing = match parts() {
        _ if mutant!() => return Ok(()),",
        }],
        caught_by: &[
            "servers limits::without_timers_or_io_a_store_with_a_server_is_refused_and_says_what_to_enable",
        ],
    },
    Mutant {
        name: "names_are_looked_up_on_the_caller_s_runtime",
        edits: &[Rust {
            file: "backend/kits/redis/net/dial.rs",
            from: "settings.clone().set_dns_resolver(Names)",
            to: "if mutant!() { settings.clone() } else { settings.clone().set_dns_resolver(Names) }",
        }],
        caught_by: &["servers limits::a_name_server_without_an_answer_keeps_no_program_from_ending"],
    },
];
