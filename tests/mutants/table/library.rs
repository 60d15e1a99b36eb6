//! Mistakes in what all stores share.

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
        caught_by: &["memory::loss_reasons::a_section_that_reaches_max_hold_says_so"],
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
        name: "a_dropped_guard_of_the_process_is_released_later",
        edits: &[Rust {
            file: "engine/turn_end.rs",
            from: "        match hold.in_store().release_now() {",
            to: "        match if mutant!() { None } else { hold.in_store().release_now() } {",
        }],
        caught_by: &["memory::cancellation::a_call_repeated_at_once_does_not_meet_its_own_lock"],
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
            from: "holds.len().min(RENEWED_TOGETHER)",
            to: "holds.len().min(if mutant!() { usize::MAX } else { RENEWED_TOGETHER })",
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
        name: "no_check_after_the_wait_behind_another",
        edits: &[Rust {
            file: "lock/acquire/mod.rs",
            from: "if turn.hold.has_enough_validity(",
            to: "if mutant!() || turn.hold.has_enough_validity(",
        }],
        caught_by: &[
            "unit engine::cohort::tests::a_turn_that_was_lost_before_its_waiter_woke_is_not_handed_out",
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
            from: "            None if signs.is_in_the_way(&waiting.cohorts) => signs.ask(),",
            to: "            None if !mutant!() && signs.is_in_the_way(&waiting.cohorts) => signs.ask(),",
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
            from: "            None if signs.is_unknown() => signs.wake_unknown(),",
            to: "            None if !mutant!() && signs.is_unknown() => signs.wake_unknown(),",
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
            from: "        if self.signs.woken() != Some(woken) {",
            to: "        if !mutant!() && self.signs.woken() != Some(woken) {",
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
        name: "clean_up_asleep_after_the_healing",
        edits: &[Rust {
            file: "engine/releaser/mod.rs",
            from: "        Self::with_pause(background, |probe| backoff(probe).min(PROBE_PAUSE))",
            to: "        Self::with_pause(background, |probe| {
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
            from: "        let ends = self.queue().return_all();",
            to: "        let ends = if mutant!() { std::collections::BTreeSet::new() } else { self.queue().return_all() };",
        }],
        caught_by: &[
            "redis::outage::down::guards_dropped_meanwhile_are_free_as_soon_as_the_store_is_back",
            "unit engine::releaser::tests::a_lock_that_the_store_refuses_to_release_does_not_hold_up_the_others",
        ],
    },
    Mutant {
        name: "a_loss_waits_for_the_store",
        edits: &[Rust {
            file: "guard/mod.rs",
            from: "        if !self.turn.is_valid(now) {
            // Dropped,",
            to: "        if !self.turn.is_valid(now) && !mutant!() {
            // Dropped,",
        }],
        caught_by: &["unit section::run::tests::a_loss_is_told_at_once_and_the_release_goes_on_without_it"],
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
        name: "the_others_of_a_lost_lock_are_freed_at_once",
        edits: &[Rust {
            file: "engine/turn_end.rs",
            from: "        self.cohorts.dissolve(hold);
",
            to: "        if mutant!() {
            for turn in hold.others() {
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
    Mutant {
        name: "values_keep_their_colons",
        edits: &[Rust {
            file: "key/encode.rs",
            from: "    matches!(byte, b':' | b'/'",
            to: "    !(mutant!() && byte == b':') && matches!(byte, b':' | b'/'",
        }],
        caught_by: &[
            "templates different_values_never_give_one_name",
            "templates the_values_of_a_name_can_be_read_back",
        ],
    },
    Mutant {
        name: "values_keep_their_percent_signs",
        edits: &[Rust {
            file: "key/encode.rs",
            from: "| b'}') || byte",
            to: "| b'}' if !(mutant!() && byte == b'%')) || byte",
        }],
        caught_by: &["templates the_values_of_a_name_can_be_read_back"],
    },
    Mutant {
        name: "values_keep_their_braces",
        edits: &[Rust {
            file: "key/encode.rs",
            from: "rest.bytes().position(is_encoded)",
            to: "rest.bytes().position(|byte| is_encoded(byte) && !(mutant!() && matches!(byte, b'{' | b'}')))",
        }],
        caught_by: &[
            "templates the_values_of_a_name_can_be_read_back",
            "templates every_name_of_bounded_length_is_a_key",
        ],
    },
    Mutant {
        name: "a_template_may_have_several_hash_tags",
        edits: &[Rust {
            file: "key/template.rs",
            from: "            (Self::None, \"{\") => Ok(Self::Empty),",
            to: "            (Self::None, \"{\") => Ok(Self::Empty),
            (Self::Closed, \"{\") if mutant!() => Ok(Self::Empty),",
        }],
        caught_by: &["templates every_name_of_bounded_length_is_a_key"],
    },
    Mutant {
        name: "placeholders_may_stand_side_by_side",
        edits: &[Rust {
            file: "key/template.rs",
            from: "Piece::Placeholder { path: second, .. }] = window {",
            to: "Piece::Placeholder { path: second, .. }] = window && !mutant!() {",
        }],
        caught_by: &["templates the_values_of_a_name_can_be_read_back"],
    },
    Mutant {
        name: "anything_separates_placeholders",
        edits: &[Rust {
            file: "key/template.rs",
            from: "            && !text.contains([':', '/', '{', '}'])",
            to: "            && !mutant!()
            && !text.contains([':', '/', '{', '}'])",
        }],
        caught_by: &["templates the_values_of_a_name_can_be_read_back"],
    },
    Mutant {
        name: "a_part_of_a_duration_overflows",
        edits: &[Rust {
            file: "time/duration.rs",
            from: "number.checked_mul(*factor)",
            to: "(if mutant!() { Some(number.wrapping_mul(*factor)) } else { number.checked_mul(*factor) })",
        }],
        caught_by: &["templates what_is_read_as_a_duration_is_its_sum"],
    },
    Mutant {
        name: "a_duration_overflows",
        edits: &[Rust {
            file: "time/duration.rs",
            from: "millis.checked_add(part)",
            to: "if mutant!() { Some(millis.wrapping_add(part)) } else { millis.checked_add(part) }",
        }],
        caught_by: &["templates what_is_read_as_a_duration_is_its_sum"],
    },
    Mutant {
        name: "milliseconds_are_minutes",
        edits: &[Rust {
            file: "time/duration.rs",
            from: "*name == unit)",
            to: "*name == if mutant!() && unit == \"ms\" { \"m\" } else { unit })",
        }],
        caught_by: &[
            "templates a_duration_is_read_as_it_was_written",
            "templates what_is_read_as_a_duration_is_its_sum",
        ],
    },
    Mutant {
        name: "a_setting_repeated_that_is_the_rest_of_a_password",
        edits: &[
            Rust {
                file: "backend/common/parts.rs",
                from: "        if names.any(",
                to: "        if !mutant!() && names.any(",
            },
            Rust {
                file: "backend/common/settings.rs",
                from: "        if !is_name || query.contains('@') {",
                to: "        if !mutant!() && (!is_name || query.contains('@')) {",
            },
        ],
        caught_by: &["unit backend::stores::tests::no_part_of_a_user_or_a_password_is_in_any_text"],
    },
];
