//! Mistakes in releases in the background, and at the end of a process.

use super::{Edit::Rust, Mutant};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        // Advisory locks have a mistake of their own, because their holds give themselves back, too.
        name: "an_attempt_that_is_disarmed_before_its_answer",
        edits: &[
            Rust {
                file: "backend/stores/redis/attempt.rs",
                from: "        self.open = true;\n        give_up",
                to: "        self.open = !mutant!();\n        give_up",
            },
            Rust {
                file: "backend/kits/unqueued/attempt.rs",
                from: "        self.open = true;",
                to: "        self.open = !mutant!();",
            },
            Rust {
                file: "backend/stores/postgres/attempt.rs",
                from: "            lease.abandon();\n",
                to: "            if mutant!() { return; }\n            lease.abandon();\n",
            },
            Rust {
                file: "backend/stores/zookeeper/attempt.rs",
                from: "            self.open = true;",
                to: "            self.open = !mutant!();",
            },
        ],
        caught_by: &[
            "redis::cancellation::acquire_of_a_free_lock",
            "redisson::cancellation::acquire_of_a_free_lock",
            "redlock::cancellation::acquire_of_a_free_lock",
            "postgres::cancellation::acquire_of_a_free_lock",
            "zookeeper::cancellation::acquire_of_a_free_lock",
        ],
    },
    Mutant {
        name: "a_dropped_guard_of_the_process_is_released_later",
        edits: &[Rust {
            file: "engine/turn_end.rs",
            from: "        match hold.in_store.as_releasable().release_now() {",
            to: "        match if mutant!() { None } else { hold.in_store.as_releasable().release_now() } {",
        }],
        caught_by: &["memory::cancellation::a_call_repeated_at_once_does_not_meet_its_own_lock"],
    },
    Mutant {
        name: "a_shutdown_waits_for_the_last_node",
        edits: &[Rust {
            file: "backend/kits/unqueued/hold.rs",
            from: "                () = sleep_until(end), if is_patient => None,",
            to: "                () = sleep_until(end), if is_patient && !mutant!() => None,",
        }],
        caught_by: &["servers redlock::minority::a_shutdown_does_not_wait_for_a_hung_node"],
    },
    Mutant {
        name: "clean_up_asleep_after_the_healing",
        edits: &[Rust {
            file: "engine/releaser/mod.rs",
            from: "        Self::with_pause(background, metrics, |probe| backoff(probe).min(PROBE_PAUSE))",
            to: "        Self::with_pause(background, metrics, |probe| {
            backoff(probe).min(PROBE_PAUSE) * if mutant!() { 1 << probe.min(10) } else { 1 }
        })",
        }],
        caught_by: &[
            "redis::outage::down::guards_dropped_meanwhile_are_free_as_soon_as_the_store_is_back",
            "memory::outage::down::guards_dropped_meanwhile_are_free_as_soon_as_the_store_is_back",
        ],
    },
    Mutant {
        name: "each_release_in_doubt_is_tried_by_itself",
        edits: &[Rust {
            file: "engine/releaser/mod.rs",
            from: "        let returned = self.queue().return_all();",
            to: "        let returned = if mutant!() { std::collections::BTreeSet::new() } else { self.queue().return_all() };",
        }],
        caught_by: &[
            "redis::outage::down::guards_dropped_meanwhile_are_free_as_soon_as_the_store_is_back",
            "unit engine::releaser::tests::a_lock_that_the_store_refuses_to_release_does_not_hold_up_the_others",
        ],
    },
];
