//! Mistakes in the loop of a waiter, in the queue of a process, and about futures that are not polled.

use super::{Edit::Rust, Mutant};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "no_check_after_the_wait_behind_another",
        edits: &[Rust {
            file: "lock/acquire/mod.rs",
            from: "if turn.is_valid(now) && turn",
            to: "if mutant!() || turn.is_valid(now) && turn",
        }],
        caught_by: &[
            "unit engine::cohort::tests::a_turn_that_was_lost_before_its_waiter_woke_is_not_handed_out",
            "unit engine::cohort::tests::a_turn_whose_max_hold_ended_before_its_waiter_woke_is_not_handed_out",
        ],
    },
    Mutant {
        name: "a_call_at_the_end_of_the_wait_is_ignored",
        edits: &[Rust {
            file: "engine/cohort/follower.rs",
            from: "        match self.call.try_recv() {
            Ok(call) => self.accept(call),",
            to: "        match self.call.try_recv() {
            Ok(call) if mutant!() => {
                std::mem::forget(call);
                Waited::TimedOut(cause)
            }
            Ok(call) => self.accept(call),",
        }],
        caught_by: &[
            "unit engine::cohort::tests::a_waiter_that_runs_out_of_time_takes_a_call_that_came_at_that_instant",
        ],
    },
    Mutant {
        name: "unpolled_first_kept",
        edits: &[Rust {
            file: "engine/unpolled/slot.rs",
            from: "            self.woken_now(0);",
            to: "            if !mutant!() {
                self.woken_now(0);
            }",
        }],
        caught_by: &[
            "memory::unpolled::the_first_in_the_queue_stops_nobody",
            "zookeeper::unpolled::the_first_in_the_queue_stops_nobody",
            "zookeeper::unpolled::after_the_end_of_its_wait_a_place_is_given_up",
        ],
    },
    Mutant {
        name: "unpolled_leader_kept",
        edits: &[Rust {
            file: "engine/unpolled/mod.rs",
            from: "            None if state.blocks_others(&waiting.cohorts) => state.probe(),",
            to: "            None if !mutant!() && state.blocks_others(&waiting.cohorts) => state.probe(),",
        }],
        caught_by: &[
            "unit engine::unpolled::tests::a_leader_that_nothing_wakes_hands_the_lead_on_when_others_follow",
            "zookeeper::unpolled::locks_that_are_held_while_another_is_waited_for_stop_nobody",
        ],
    },
    Mutant {
        name: "polled_only_once_kept",
        edits: &[Rust {
            file: "engine/unpolled/mod.rs",
            from: "            None if state.is_unknown() => state.wake_unknown(),",
            to: "            None if !mutant!() && state.is_unknown() => state.wake_unknown(),",
        }],
        caught_by: &[
            "unit engine::unpolled::tests::one_that_was_not_polled_after_its_first_question_is_given_up",
        ],
    },
    Mutant {
        name: "shutdown_forgets_those_that_asked",
        edits: &[Rust {
            file: "engine/mod.rs",
            from: "        self.waiting.close();",
            to: "        if !mutant!() {
            self.waiting.close();
        }",
        }],
        caught_by: &[
            "unit engine::unpolled::tests::the_shutdown_wakes_one_that_was_not_polled_since_it_asked",
        ],
    },
    Mutant {
        name: "old_leader_overwrites",
        edits: &[Rust {
            file: "engine/cohort/queues.rs",
            from: "            && *leader == attempt
",
            to: "            && (mutant!() || *leader == attempt)
",
        }],
        caught_by: &["unit engine::unpolled::tests::what_is_left_of_a_leader_that_was_given_up_has_no_say"],
    },
    Mutant {
        name: "given_up_though_it_was_polled",
        edits: &[Rust {
            file: "engine/unpolled/slot.rs",
            from: "        if self.state.woken() != Some(woken) {",
            to: "        if !mutant!() && self.state.woken() != Some(woken) {",
        }],
        caught_by: &["unit engine::unpolled::tests::what_was_polled_since_is_not_given_up"],
    },
    Mutant {
        name: "deep_waiters_given_up",
        edits: &[Rust {
            file: "idle.rs",
            from: "        let _idle = Idle::set(true);
        self.0",
            to: "        let _idle = Idle::set(!mutant!());
        self.0",
        }],
        caught_by: &["memory::unpolled::waiters_deeper_in_the_queue_keep_their_place"],
    },
    Mutant {
        name: "an_acquisition_that_is_no_longer_counted_when_its_call_is_dropped",
        edits: &[Rust {
            file: "lock/acquire/mod.rs",
            from: "    Ok(Started::Waits { pending: Box::pin(question.answered()), task })",
            to: "    let pending: Pending = if mutant!() {
        let Question { leader, call, deadline, context } = question;
        Box::pin(async move {
            // What a future captures first, it drops first.
            let context = context;
            Question { leader, call, deadline, context }.answered().await
        })
    } else {
        Box::pin(question.answered())
    };
    Ok(Started::Waits { pending, task })",
        }],
        caught_by: &[
            "unit lock::acquire::tests::an_acquisition_is_counted_until_the_call_of_its_store_is_dropped",
        ],
    },
    Mutant {
        name: "a_waiter_sleeps_until_it_is_told",
        edits: &[Rust {
            file: "backend/common/waiting.rs",
            from: "() = request.progress.sleep_until((now + pause).min(end)) => {}",
            to: "() = request.progress.sleep_until(if mutant!() { end } else { (now + pause).min(end) }) => {}",
        }],
        caught_by: &["servers redisson::a_hold_that_ends_without_a_message_is_noticed"],
    },
    Mutant {
        name: "no_attempt_after_the_subscription",
        edits: &[Rust {
            file: "backend/common/waiting.rs",
            from: "            subscription = Some(waiter.subscribe());
            continue;
",
            to: "            subscription = Some(waiter.subscribe());
            if mutant!() {
                request.progress.sleep_until(end.min(now + pause.max(Duration::from_millis(200)))).await;
            }
            continue;
",
        }],
        caught_by: &[
            "unit backend::common::waiting::tests::a_release_before_the_subscription_is_found_by_the_question_after_it",
            "servers redisson::a_waiter_asks_again_as_soon_as_it_has_subscribed",
        ],
    },
    Mutant {
        name: "messages_are_counted_after_the_question",
        edits: &[Rust {
            file: "backend/common/waiting.rs",
            from: "        request.progress.contended();\n",
            to: "        let before = match &subscription {
            Some(subscription) if mutant!() => subscription.as_ref().count(),
            _ => before,
        };
        request.progress.contended();\n",
        }],
        caught_by: &[
            "unit backend::common::waiting::tests::a_release_between_a_question_and_the_wait_for_messages_wakes_the_waiter",
        ],
    },
    Mutant {
        name: "push_from_its_arrival",
        edits: &[Rust {
            file: "backend/common/place_proof.rs",
            from: "valid_until(self.sent, lease)",
            to: "valid_until(if mutant!() { Instant::now() } else { self.sent }, lease)",
        }],
        caught_by: &[
            "redis::reconnect::a_grant_that_is_told_late_lets_nobody_in",
            "unit backend::stores::postgres::next_holder::tests::a_grant_is_dated_by_the_request_before_it_and_never_by_its_arrival",
        ],
    },
    Mutant {
        name: "a_waiter_that_believes_an_old_grant",
        edits: &[Rust {
            file: "backend/common/place_proof.rs",
            from: "(number > self.last)",
            to: "(number > self.last || mutant!())",
        }],
        caught_by: &[
            "unit backend::stores::redis::queue::place::tests::a_grant_from_before_the_proof_is_stale",
            "unit backend::stores::postgres::next_holder::tests::a_grant_that_is_old_or_another_s_or_forged_is_not_ours",
        ],
    },
];
