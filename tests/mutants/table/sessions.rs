//! Mistakes in the rules of all sessions.

use super::{Edit::Rust, Mutant};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a_session_that_ends_without_a_notice_to_its_holds",
        edits: &[Rust {
            file: "backend/common/session.rs",
            from: "        for (_, notifier) in lost.into_values() {",
            to: "        for (_, notifier) in lost.into_values().filter(|_| !mutant!()) {",
        }],
        caught_by: &[
            "unit backend::common::session::tests::the_end_notifies_each_hold_once",
            "postgres_advisory::reconnect::cut::a_hold_whose_connection_broke_is_lost_at_once",
        ],
    },
    Mutant {
        name: "a_hold_that_outlives_a_session_that_ended_before_it",
        edits: &[Rust {
            file: "backend/common/session.rs",
            from: "            if !self.has_ended() {",
            to: "            if !self.has_ended() || mutant!() {",
        }],
        caught_by: &[
            "unit backend::common::session::tests::a_hold_that_is_registered_after_the_end_is_lost_at_once",
            "unit backend::common::session::tests::a_hold_that_is_registered_at_the_end_is_lost_once",
        ],
    },
    Mutant {
        name: "an_ended_session_that_keeps_its_deadline",
        edits: &[Rust {
            file: "backend/common/session.rs",
            from: "Instant::from_nanos(if self.has_ended() {",
            to: "Instant::from_nanos(if self.has_ended() && !mutant!() {",
        }],
        caught_by: &[
            "unit backend::common::session::tests::the_deadline_moves_forward_only_and_has_passed_after_the_end",
        ],
    },
];
