//! Mistakes in what is recorded.

use super::{Edit::Rust, Mutant};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a_holder_that_is_late_is_not_recorded",
        edits: &[Rust {
            file: "engine/hold/turn.rs",
            from: "_ => (now > deadline).then(",
            to: "_ => (now > deadline && !mutant!()).then(",
        }],
        caught_by: &["unit metrics::tests::each_hold_has_one_end"],
    },
    Mutant {
        name: "an_acquisition_that_is_cancelled_is_not_recorded",
        edits: &[Rust {
            file: "metrics/on.rs",
            from: "if self.meter.is_some() {",
            to: "if self.meter.is_some() && !mutant!() {",
        }],
        caught_by: &["unit metrics::tests::each_acquisition_has_one_outcome"],
    },
    Mutant {
        name: "the_instruments_of_the_first_recorder_are_kept",
        edits: &[Rust {
            file: "metrics/on.rs",
            from: "filter(|meter| meter.0.recorder == address)",
            to: "filter(|meter| meter.0.recorder == address || mutant!())",
        }],
        caught_by: &[
            "unit metrics::tests::locks_of_one_class_share_their_instruments_until_the_recorder_changes",
        ],
    },
    Mutant {
        name: "a_lock_that_is_reentered_counts_as_held_twice",
        edits: &[Rust {
            file: "guard/mod.rs",
            from: "holding: Holding::again()",
            to: "holding: if mutant!() { Holding::since(Instant::now()) } else { Holding::again() }",
        }],
        caught_by: &["unit metrics::tests::a_reentered_lock_is_held_once"],
    },
    Mutant {
        name: "a_recorder_may_panic_through_a_lock",
        edits: &[Rust {
            file: "metrics/on.rs",
            from: "    catch_unwind(AssertUnwindSafe(call)).ok()",
            to: "    if mutant!() { Some(call()) } else { catch_unwind(AssertUnwindSafe(call)).ok() }",
        }],
        caught_by: &["unit metrics::tests::a_recorder_that_panics_harms_no_lock"],
    },
];
