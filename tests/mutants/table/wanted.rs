//! Mistakes about acquisitions that wait for a held lock, and of which its holder is told.

use super::{
    Edit::{Rust, Script},
    Mutant,
};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "wanted_misses_a_new_waiter",
        edits: &[Rust {
            file: "engine/cohort/entry.rs",
            from: "    cohort.show_waiters();",
            to: "    if !mutant!() {
        cohort.show_waiters();
    }",
        }],
        caught_by: &[
            "memory::wanted::a_waiter_of_this_client_makes_the_lock_wanted",
            "memory::wanted::a_waiter_that_came_before_the_call_counts",
            "unit engine::cohort::tests::a_task_that_begins_to_wait_wakes_the_holder_that_awaits_it",
        ],
    },
    Mutant {
        name: "wanted_by_a_waiter_that_has_gone",
        edits: &[Rust {
            file: "engine/cohort/queues.rs",
            from: "        cohort.waiters.retain(|waiter| waiter.id != id);
        cohort.show_waiters();",
            to: "        cohort.waiters.retain(|waiter| waiter.id != id);
        if !mutant!() {
            cohort.show_waiters();
        }",
        }],
        caught_by: &["memory::wanted::a_waiter_that_has_gone_does_not_count"],
    },
    Mutant {
        name: "wanted_by_the_next_holder",
        edits: &[Rust {
            file: "engine/cohort/queues.rs",
            from: "                tenure.handed_over();
                cohort.show_waiters();",
            to: "                tenure.handed_over();
                if !mutant!() {
                    cohort.show_waiters();
                }",
        }],
        caught_by: &["unit engine::cohort::tests::after_a_hand_over_only_the_tasks_that_still_wait_count"],
    },
    Mutant {
        name: "wanted_by_the_waiters_of_a_later_turn",
        edits: &[Rust {
            file: "engine/hold/turn.rs",
            from: "            () = self.lost() => pending().await,",
            to: "            () = self.lost(), if !mutant!() => pending().await,",
        }],
        caught_by: &[
            "memory::wanted::a_lock_that_is_no_longer_held_is_never_wanted",
            "redis::wanted::a_lock_that_is_no_longer_held_is_never_wanted",
        ],
    },
    Mutant {
        name: "wanted_misses_a_place_in_memory",
        edits: &[Rust {
            file: "backend/stores/memory/mod.rs",
            from: "        self.waits.notify(key.stored());",
            to: "        if !mutant!() {
            self.waits.notify(key.stored());
        }",
        }],
        caught_by: &["memory::wanted::a_waiter_of_another_client_makes_the_lock_wanted"],
    },
    Mutant {
        name: "wanted_by_a_hint",
        edits: &[Rust {
            file: "backend/stores/redis/hold.rs",
            from: "if self.has_queue().await == Some(true) {",
            to: "if mutant!() || self.has_queue().await == Some(true) {",
        }],
        caught_by: &["redis::wanted::a_holder_that_has_waited_itself_does_not_count"],
    },
    Mutant {
        name: "wanted_by_the_own_wait",
        edits: &[Script {
            from: "AND date_part('epoch', l.wanted_until) * 1000000 > l.version + $3 AS wanted",
            to: "AND $3 > 0 AS wanted",
        }],
        caught_by: &["postgres::wanted::a_holder_that_has_waited_itself_does_not_count"],
    },
    Mutant {
        name: "wanted_by_the_own_contender",
        edits: &[Rust {
            file: "backend/stores/zookeeper/queue.rs",
            from: "    children.iter().any(|child| child != own && sequence(child).is_some())",
            to: "    children.iter().any(|child| (mutant!() || child != own) && sequence(child).is_some())",
        }],
        caught_by: &["zookeeper::wanted::a_lock_for_which_none_waits_is_not_wanted"],
    },
];
