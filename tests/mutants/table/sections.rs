//! Mistakes in the code under a lock, and in its answers.

use super::{Edit::Rust, Mutant};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a_lost_lock_is_a_503_that_proxies_repeat",
        edits: &[Rust {
            file: "response/mod.rs",
            from: "..new(\"lost\", 500, Code::Aborted",
            to: "..new(\"lost\", if mutant!() { 503 } else { 500 }, Code::Aborted",
        }],
        caught_by: &["unit response::tests::every_kind_has_its_answer"],
    },
    Mutant {
        name: "scope_by_connection",
        edits: &[Rust {
            file: "engine/mod.rs",
            from: "self.backend.names().iter().any(|name| names.contains(name))",
            to: "!mutant!() && self.backend.names().iter().any(|name| names.contains(name))",
        }],
        caught_by: &[
            "memory::reentrance::another_client_of_the_store_is_told_the_same_in_the_section",
            "redis::reentrance::another_client_of_the_store_is_told_the_same_in_the_section",
            "zookeeper::reentrance::another_client_of_the_store_is_told_the_same_in_the_section",
        ],
    },
    Mutant {
        name: "a_failed_release_replaces_the_result",
        edits: &[Rust {
            file: "section/mod.rs",
            from: "                    Err(error) => tracing::debug!(%error, \"the release after the section was not confirmed\"),",
            to: "                    Err(error) => assert!(!mutant!(), \"{error}\"),",
        }],
        caught_by: &["redis::outage::black_hole::a_body_keeps_its_result_although_its_release_fails"],
    },
    Mutant {
        name: "the_body_runs_although_the_wait_ran_out",
        edits: &[Rust {
            file: "macro_support/mod.rs",
            from: "    lock.as_ref().map_err(Clone::clone)?.acquire().await",
            to: "    match lock.as_ref().map_err(Clone::clone)?.acquire().await {
        // A guard that guards nothing.
        Err(error) if mutant!() && error.kind() == LockErrorKind::Timeout => {
            LockManager::new(crate::backend::Memory::new()).lock(\"nothing\").acquire().await
        }
        answer => answer,
    }",
        }],
        caught_by: &[
            "memory::attribute::a_body_does_not_run_when_the_wait_for_its_lock_runs_out",
            "redis::attribute::a_body_does_not_run_when_the_wait_for_its_lock_runs_out",
            "redis::attribute_under_faults::no_body_runs_without_its_lock_nor_beside_another",
        ],
    },
    Mutant {
        name: "the_body_goes_after_its_lock",
        edits: &[Rust {
            file: "section/run.rs",
            from: "            this.body.set(None);
",
            to: "            if !mutant!() {
                this.body.set(None);
            }
",
        }],
        caught_by: &[
            "memory::loss::a_body_is_gone_before_another_enters_when_max_hold_is_over",
            "unit section::run::tests::the_body_goes_before_the_lock",
        ],
    },
    Mutant {
        name: "the_key_is_computed_again",
        edits: &[Rust {
            file: "key/encode.rs",
            from: "        let start = self.name.len();",
            to: "        if mutant!() && value.to_string().is_empty() {
            return;
        }
        let start = self.name.len();",
        }],
        caught_by: &["redis::attribute::the_key_is_computed_once_and_freed_as_it_was_taken"],
    },
];
