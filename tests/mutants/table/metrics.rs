//! Mistakes in what is recorded.

use super::{Edit::Rust, Mutant};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "an_old_answer_shows_a_server_that_is_away_as_reachable",
        edits: &[Rust {
            file: "backend/common/outage.rs",
            from: "sent.as_nanos() > self.failed.load(Ordering::SeqCst)",
            to: "mutant!() || sent.as_nanos() > self.failed.load(Ordering::SeqCst)",
        }],
        caught_by: &[
            "unit backend::common::outage::tests::only_the_answer_to_a_later_request_shows_that_the_server_is_back",
        ],
    },
    Mutant {
        name: "a_server_that_fails_again_is_still_shown_as_reachable",
        edits: &[Rust {
            file: "backend/common/outage.rs",
            from: "        self.failed.store(now.as_nanos(), Ordering::SeqCst);
        self.reached.store(0, Ordering::SeqCst);",
            to: "        self.failed.store(now.as_nanos(), Ordering::SeqCst);
        if !mutant!() {
            self.reached.store(0, Ordering::SeqCst);
        }",
        }],
        caught_by: &[
            "unit backend::common::outage::tests::the_status_follows_the_outages",
            "redis::status::down::an_outage_is_shown_until_it_is_over",
        ],
    },
    Mutant {
        name: "half_of_the_servers_count_as_a_majority",
        edits: &[Rust {
            file: "manager/status.rs",
            from: "reachable > self.servers.len() / 2",
            to: "reachable + usize::from(mutant!()) > self.servers.len() / 2",
        }],
        caught_by: &["unit manager::status::tests::a_majority_of_the_servers_is_enough_and_needed"],
    },
    Mutant {
        name: "an_acquisition_in_progress_counts_as_a_held_lock",
        edits: &[Rust {
            file: "engine/mod.rs",
            from: "saturating_sub(requested)",
            to: "saturating_sub(if mutant!() { 0 } else { requested })",
        }],
        caught_by: &["unit manager::status::tests::locks_waiters_and_doubts_are_counted"],
    },
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
