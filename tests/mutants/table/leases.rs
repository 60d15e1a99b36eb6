//! Mistakes in deadlines, renewals, and what becomes of a lost lock.

use super::{Edit::Rust, Mutant};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "no_drift",
        edits: &[Rust {
            file: "time/deadline.rs",
            from: "    sent + length.saturating_sub(drift + margin(length))",
            to: "    sent + if mutant!() { length } else { length.saturating_sub(drift + margin(length)) }",
        }],
        caught_by: &[
            "redis::lease::without_renewal_the_lock_is_lost_within_its_ttl",
            "memory::loss::a_body_is_gone_before_another_enters_when_its_lease_is_over",
            "redis::loss::a_body_is_gone_before_another_enters_when_its_lease_is_over",
            "redis_grouped::loss::black_hole::a_body_is_gone_before_another_enters_when_its_lease_cannot_be_renewed",
            "unit simulation::a_quorum_keeps_its_promises_whatever_fails",
        ],
    },
    Mutant {
        name: "loss_when_the_store_says_so",
        edits: &[Rust {
            file: "engine/hold.rs",
            from: "        if now >= deadline && !self.lost.load(Ordering::Acquire) {",
            to: "        if now >= deadline && !self.lost.load(Ordering::Acquire) && !mutant!() {",
        }],
        caught_by: &[
            "redis::outage::black_hole::loss_is_signalled_before_the_lease_ends",
            "redis::loss::black_hole::a_body_is_gone_before_another_enters_when_its_lease_cannot_be_renewed",
            "zookeeper::loss::black_hole::a_body_is_gone_before_another_enters_when_its_lease_cannot_be_renewed",
            "redis::paused::a_holder_paused_beyond_its_lease_knows_it_at_once_and_spares_the_successor",
        ],
    },
    Mutant {
        name: "wall_clock",
        edits: &[Rust {
            file: "time/clock.rs",
            from: "    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);",
            to: "    let wall = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    if mutant!() {
        return u64::try_from(wall.as_nanos()).unwrap_or(0);
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);",
        }],
        caught_by: &[
            "redis::clocks::a_jump_of_the_holder_s_clock_neither_ends_its_lease_nor_makes_it_longer",
        ],
    },
    Mutant {
        name: "every_loss_is_an_unanswered_renewal",
        edits: &[Rust {
            file: "engine/hold.rs",
            from: "        if self.turn_ends() <= deadline {",
            to: "        if mutant!() {
            return Cause::Unanswered;
        }
        if self.turn_ends() <= deadline {",
        }],
        caught_by: &[
            "memory::loss_reasons::a_lease_that_is_not_renewed_says_so",
            "memory::loss_reasons::a_guard_kept_beyond_max_hold_says_so",
            "memory::loss_reasons::down::a_lock_whose_renewals_fail_names_their_failure",
        ],
    },
    Mutant {
        name: "a_section_that_loses_its_lock_logs_nothing",
        edits: &[Rust {
            file: "engine/turn_end.rs",
            from: "        if permit.is_some() && !covered && hold.is_first_report() {",
            to: "        if permit.is_some() && !covered && hold.is_first_report() && !mutant!() {",
        }],
        caught_by: &[
            "unit engine::turn_end::tests::a_loss_that_no_renewal_has_noticed_is_logged_when_the_guard_leaves",
        ],
    },
    Mutant {
        name: "a_loss_is_logged_twice",
        edits: &[Rust {
            file: "engine/hold.rs",
            from: "swap(ends, Ordering::SeqCst) != ends",
            to: "swap(ends, Ordering::SeqCst) != ends || mutant!()",
        }],
        caught_by: &["memory::loss_reasons::a_guard_kept_beyond_max_hold_says_so"],
    },
    Mutant {
        name: "several_lost_locks_log_nothing",
        edits: &[Rust {
            file: "guard/multi.rs",
            from: "            if lost.turn().hold.is_first_report() {",
            to: "            if !mutant!() && lost.turn().hold.is_first_report() {",
        }],
        caught_by: &[
            "unit lock::multi::tests::a_lock_that_is_almost_over_when_the_last_is_granted_is_not_handed_out",
        ],
    },
    Mutant {
        name: "granted_without_a_thread_for_renewals",
        edits: &[Rust {
            file: "engine/permit.rs",
            from: "        background::check()?;",
            to: "        background::check().or_else(|error| if mutant!() { Ok(()) } else { Err(error) })?;",
        }],
        caught_by: &["servers limits::without_a_thread_nothing_is_acquired_and_nothing_panics"],
    },
    Mutant {
        name: "renewal_outlives_the_hold",
        edits: &[Rust {
            file: "engine/renewal.rs",
            from: "        hold.close();
        schedule.take(hold);
    }",
            to: "        if mutant!() {
            return;
        }
        hold.close();
        schedule.take(hold);
    }",
        }],
        caught_by: &["redis::lease::nothing_is_sent_for_a_hold_that_is_over"],
    },
    Mutant {
        name: "renewal_not_resumed",
        edits: &[Rust {
            file: "engine/renewal.rs",
            from: "fn try_again<H: LossHandler>(handler: &Arc<H>, hold: &Arc<Hold>) {
",
            to: "fn try_again<H: LossHandler>(handler: &Arc<H>, hold: &Arc<Hold>) {
    if mutant!() {
        return;
    }
",
        }],
        caught_by: &[
            "redis::outage::black_hole::an_outage_shorter_than_the_lease_costs_nothing",
            "redis::reconnect::connections_that_went_mute_cost_no_lease",
        ],
    },
    Mutant {
        name: "one_renewal_after_the_other",
        edits: &[Rust {
            file: "engine/renewal.rs",
            from: "            tokio::spawn(renewal);",
            to: "        static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        tokio::spawn(async move {
            let _alone = if mutant!() { Some(ALONE.lock().await) } else { None };
            renewal.await;
        });",
        }],
        caught_by: &["servers redis::renewal::a_server_that_stands_still_delays_no_renewal_on_another"],
    },
    Mutant {
        name: "all_renewals_in_one_call",
        edits: &[Rust {
            file: "engine/renewal.rs",
            from: "holds.len().min(MAX_LEASES_PER_CALL)",
            to: "holds.len().min(if mutant!() { usize::MAX } else { MAX_LEASES_PER_CALL })",
        }],
        caught_by: &[
            "unit engine::renewal::tests::very_many_are_renewed_in_parts_that_do_not_wait_for_each_other",
        ],
    },
    Mutant {
        name: "no_check_after_the_wait",
        edits: &[Rust {
            file: "lock/acquire/store.rs",
            from: "    let is_short = !hold.has_enough_validity",
            to: "    let is_short = !mutant!() && !hold.has_enough_validity",
        }],
        caught_by: &["redis::lease::an_answer_that_comes_too_late_to_be_of_use_is_given_back"],
    },
    Mutant {
        name: "a_loss_waits_for_the_store",
        edits: &[Rust {
            file: "guard/mod.rs",
            from: "        if !self.turn.is_valid(now) {
            // The drop of the guard",
            to: "        if !self.turn.is_valid(now) && !mutant!() {
            // The drop of the guard",
        }],
        caught_by: &["unit section::run::tests::a_loss_is_told_at_once_and_the_release_goes_on_without_it"],
    },
    Mutant {
        name: "the_others_of_a_lost_lock_are_freed_at_once",
        edits: &[Rust {
            file: "engine/turn_end.rs",
            from: "        self.cohorts.dissolve(hold);
",
            to: "        if mutant!() {
            for turn in hold.linked_turns() {
                self.end_turn_in_background(&turn, TurnEnd::Unused, Instant::now());
            }
        }
        self.cohorts.dissolve(hold);
",
        }],
        caught_by: &[
            "memory::loss::a_body_is_gone_before_another_enters_when_another_of_its_locks_is_lost",
            "redis::loss::a_body_is_gone_before_another_enters_when_another_of_its_locks_is_lost",
            "zookeeper::loss::a_body_is_gone_before_another_enters_when_another_of_its_locks_is_lost",
        ],
    },
    Mutant {
        name: "a_lost_session_frees_its_lock_at_once",
        edits: &[Rust {
            file: "engine/turn_end.rs",
            from: "            let stopped = now + margin(longest);",
            to: "            let stopped = if mutant!() { now } else { now + margin(longest) };",
        }],
        caught_by: &["zookeeper::loss::a_body_is_gone_before_another_enters_when_max_hold_is_over"],
    },
    Mutant {
        name: "a_refused_renewal_is_tried_again",
        edits: &[Rust {
            file: "engine/renewal.rs",
            from: "            Renewal::NotHeld => lost(",
            to: "            Renewal::NotHeld if mutant!() => try_again(&handler, &hold),
            Renewal::NotHeld => lost(",
        }],
        caught_by: &[
            "memory::loss::a_body_ends_at_the_next_renewal_when_the_store_gave_its_lock_away",
            "redis::loss::a_body_ends_at_the_next_renewal_when_the_store_gave_its_lock_away",
        ],
    },
    Mutant {
        name: "a_lease_that_is_handed_over_after_its_retention_is_not_renewed",
        edits: &[Rust {
            file: "engine/renewal.rs",
            from: "    // A lease that was handed over at the end",
            to: "    if now >= ends && mutant!() {
        return;
    }
    // A lease that was handed over at the end",
        }],
        caught_by: &[
            "unit engine::renewal::tests::a_lease_that_is_handed_over_at_the_end_of_its_retention_is_renewed",
            "memory::hold_at_least::who_is_let_in_at_its_time_keeps_the_lock_beyond_its_ttl",
            "redis::hold_at_least::who_is_let_in_at_its_time_keeps_the_lock_beyond_its_ttl",
        ],
    },
    Mutant {
        name: "a_panic_ends_the_renewals_of_a_store",
        edits: &[Rust {
            file: "engine/renewal.rs",
            from: "        if thread::panicking() {",
            to: "        if thread::panicking() && !mutant!() {",
        }],
        caught_by: &[
            "unit engine::renewal::tests::a_panic_at_a_loss_ends_neither_the_check_of_the_other_holds_nor_the_job",
        ],
    },
    Mutant {
        name: "a_panic_forgets_the_holds_that_were_due",
        edits: &[Rust {
            file: "engine/renewal.rs",
            from: "            self.renewals.put(hold);",
            to: "            if !mutant!() {
                self.renewals.put(hold);
            }",
        }],
        caught_by: &[
            "unit engine::renewal::tests::a_panic_at_a_loss_ends_neither_the_check_of_the_other_holds_nor_the_job",
        ],
    },
    Mutant {
        name: "a_turn_that_was_reported_too_early_is_not_renewed",
        edits: &[Rust {
            file: "engine/renewal.rs",
            from: "            ends.has_passed() && hold",
            to: "            (ends.has_passed() || mutant!()) && hold",
        }],
        caught_by: &[
            "unit engine::renewal::tests::a_loss_that_was_reported_before_the_end_of_its_turn_does_not_end_the_renewals",
        ],
    },
    Mutant {
        name: "a_shutdown_waits_for_the_retention_of_a_lost_lock",
        edits: &[Rust {
            file: "engine/releaser/mod.rs",
            from: "        if start < retained_until {",
            to: "        let start = if mutant!() { start.max(retained_until) } else { start };
        if start < retained_until {",
        }],
        caught_by: &[
            "unit engine::renewal::tests::a_shutdown_does_not_wait_for_the_retention_of_a_lost_session_lock",
        ],
    },
    Mutant {
        name: "the_end_of_max_hold_ends_one_lock_of_several",
        edits: &[Rust {
            file: "engine/renewal.rs",
            from: "    if is_lost {\n",
            to: "    if is_lost && mutant!() {
        return hold.cause(now).log(hold.key());
    }
    if is_lost {\n",
        }],
        caught_by: &["unit lock::multi::tests::the_end_of_max_hold_of_one_of_them_ends_the_others"],
    },
];
