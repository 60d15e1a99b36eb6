//! Mistakes in `once_per`.

use super::{
    Edit::{Rust, Script},
    Mutant,
};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a_period_is_used_up_without_the_lock",
        edits: &[Rust {
            file: "lock/once_per/mark.rs",
            from: "if let Some(mark) = self.mark.take() {",
            to: "if let Some(mark) = self.mark.take().filter(|_| !mutant!()) {",
        }],
        caught_by: &[
            "redis::once_per::a_lock_that_another_client_holds_leaves_the_period",
            "zookeeper::once_per::a_dropped_wait_for_the_lock_leaves_the_period",
            "postgres_advisory::once_per::a_shutdown_leaves_the_period_of_a_waiter",
        ],
    },
    Mutant {
        name: "a_period_that_was_run_is_free_again",
        edits: &[Rust {
            file: "lock/once_per/mark.rs",
            from: "pub(super) fn keep(mut self) {\n        self.mark = None;",
            to: "pub(super) fn keep(mut self) {\n        if !mutant!() { self.mark = None; }",
        }],
        caught_by: &["memory::once_per::one_of_six_clients_runs_a_period"],
    },
    Mutant {
        name: "a_mark_for_all_periods",
        edits: &[Rust {
            file: "key/mod.rs",
            from: "period % 2)",
            to: "if mutant!() { 0 } else { period % 2 })",
        }],
        caught_by: &["redis::once_per::each_period_is_run_and_none_twice"],
    },
    Mutant {
        name: "a_timer_that_is_early_misses_its_period",
        edits: &[Rust {
            file: "lock/once_per/period.rs",
            from: "nanos(now + length / 10)",
            to: "nanos(if mutant!() { now } else { now + length / 10 })",
        }],
        caught_by: &[
            "unit lock::once_per::period::tests::a_start_in_the_last_tenth_counts_for_the_next_period",
            "redis::once_per::a_start_in_the_last_tenth_counts_for_the_next_period",
        ],
    },
    Mutant {
        name: "a_mark_in_doubt_is_taken_for_another_client_s",
        edits: &[Rust {
            file: "lock/once_per/mark.rs",
            from: "            self.undo().await?;",
            to: "            if !mutant!() { self.undo().await?; }",
        }],
        caught_by: &["redis::once_per_under_faults::answer_lost::a_lost_answer_uses_up_no_period"],
    },
    Mutant {
        name: "a_mark_that_is_being_removed_is_taken_for_another_client_s",
        edits: &[Rust {
            file: "lock/once_per/mark.rs",
            from: "if was_removing || is_removing() {",
            to: "if (was_removing || is_removing()) && !mutant!() {",
        }],
        caught_by: &["unit lock::once_per::tests::a_mark_that_is_being_removed_is_no_run"],
    },
    Mutant {
        name: "a_late_mark_is_relied_on",
        edits: &[Rust {
            file: "lock/once_per/mark.rs",
            from: "if period.is_in_time(",
            to: "if mutant!() || period.is_in_time(",
        }],
        caught_by: &["unit lock::once_per::tests::a_late_mark_is_not_relied_on"],
    },
    Mutant {
        name: "a_shutdown_waits_for_marks_for_ever",
        edits: &[Rust {
            file: "engine/releaser/marks.rs",
            from: "() = clock::sleep_until(awaited_until) => {}",
            to: "() = clock::sleep_until(awaited_until), if !mutant!() => {}",
        }],
        caught_by: &["redis::once_per_under_faults::a_shutdown_is_not_held_up_by_the_mark"],
    },
    Mutant {
        name: "a_shutdown_waits_for_no_mark",
        edits: &[Rust {
            file: "engine/releaser/mod.rs",
            from: "        self.marks_removed().await;",
            to: "        if !mutant!() { self.marks_removed().await; }",
        }],
        caught_by: &["unit lock::once_per::tests::a_shutdown_waits_for_the_removal_of_a_mark"],
    },
    Mutant {
        name: "a_later_mark_is_overwritten",
        edits: &[Rust {
            file: "backend/stores/zookeeper/marks.rs",
            from: "if entry.period > mark.period && !entry.is_of_a_wrong_clock(now) => {",
            to: "if entry.period > mark.period && !entry.is_of_a_wrong_clock(now) && !mutant!() => {",
        }],
        caught_by: &[
            "unit backend::stores::zookeeper::marks::tests::a_mark_is_set_once_and_its_owner_recognises_it",
        ],
    },
    Mutant {
        name: "a_row_is_marked_again",
        edits: &[Script {
            from: "(l.revoked IS NOT DISTINCT FROM l.version) <> (l.owner = excluded.owner)",
            to: "true",
        }],
        caught_by: &["postgres_advisory::once_per::one_of_six_clients_runs_a_period"],
    },
    Mutant {
        name: "a_process_may_end_before_its_mark_is_removed",
        edits: &[Rust {
            file: "lock/once_per/mark.rs",
            from: "            () = engine.releaser.marks_removed() => {}",
            to: "            () = engine.releaser.marks_removed(), if !mutant!() => {}
            () = async {}, if mutant!() => {}",
        }],
        caught_by: &[
            "unit lock::once_per::tests::an_acquisition_that_fails_waits_for_the_removal_of_its_mark",
        ],
    },
    Mutant {
        name: "a_failed_start_ends_before_its_mark_is_removed",
        edits: &[Rust {
            file: "bin/distlock/run/holder.rs",
            from: "            // with this process.",
            to: "            if mutant!() { return bell.tell(Event::Refused(error, state.and_then(Result::ok))); }",
        }],
        caught_by: &["distlock alone::a_start_that_a_lost_answer_ends_leaves_the_period"],
    },
    Mutant {
        name: "a_tie_for_a_mark_is_a_run",
        edits: &[Rust {
            file: "lock/once_per/mark.rs",
            from: "holder: None, .. } if attempt < MAX_REPEATS_IF_BUSY => {",
            to: "holder: None, .. } if attempt < MAX_REPEATS_IF_BUSY && !mutant!() => {",
        }],
        caught_by: &["unit lock::once_per::tests::a_mark_without_a_holder_is_asked_for_again"],
    },
    Mutant {
        name: "a_section_without_a_period_runs_one",
        edits: &[Rust {
            file: "lock/once_per.rs",
            from: "if guard.period().is_some() {",
            to: "if guard.period().is_some() || mutant!() {",
        }],
        caught_by: &["memory::once_per::a_section_without_a_period_runs_none"],
    },
];
