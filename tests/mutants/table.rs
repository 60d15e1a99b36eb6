//! The table of the mutants: the changed text, and the tests that catch it.

/// A built-in mistake, made only when it is chosen at run time.
pub struct Mutant {
    pub name: &'static str,
    pub edits: &'static [Edit],
    /// Tests that fail with it and pass without it: of the conformance suite, of `lock-runtime` where they begin with
    /// `unit `, or of another program of the suite or of `lock-runtime` where they begin with its name.
    pub caught_by: &'static [&'static str],
}

/// One change of the text.
pub enum Edit {
    /// Of Rust, in a file of `lock-runtime/src`: the text occurs once in it. `mutant!()` in the new text is true
    /// while the mutant is chosen.
    Rust { file: &'static str, from: &'static str, to: &'static str },
    /// Of the scripts, when they are loaded.
    Lua { from: &'static str, to: &'static str },
}

use Edit::{Lua, Rust};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "release_without_owner_check",
        edits: &[Lua {
            from: "local is_holder = holder and string.sub(holder, 1, #owner + 1) == owner .. ':'",
            to: "local is_holder = holder",
        }],
        caught_by: &[
            "redis::ownership::a_drop_after_the_end_of_the_lease_spares_the_successor",
            "redis::ownership::a_release_that_arrives_late_spares_the_successor",
        ],
    },
    Mutant {
        name: "grouped_release_without_owner_check",
        edits: &[Lua { from: "if values[i] == ARGV[i + 1] and", to: "if values[i] and" }],
        caught_by: &[
            "redis_grouped::ownership::a_release_after_the_store_lost_the_hold_says_lost_and_spares_the_successor",
        ],
    },
    Mutant {
        name: "one_owner_token_for_all_attempts",
        edits: &[
            Rust {
                file: "backend/stores/redis/attempt.rs",
                from: "            owner: OwnerToken::random(),",
                to: "            owner: if mutant!() { OwnerToken::from(7) } else { OwnerToken::random() },",
            },
            Rust {
                file: "engine/cohort/queues.rs",
                from: "                State::Holding { turn, .. } if turn.hold.is_valid(now) => {",
                to: "                State::Holding { turn, .. } if turn.hold.is_valid(now) && !mutant!() => {",
            },
        ],
        caught_by: &[
            "redis::ownership::a_lock_asked_for_again_keeps_its_first_hold",
            "redis::ownership::an_owner_is_known_by_another_name_each_time",
            "redis::ownership::a_lost_guard_does_not_release_a_later_hold_of_the_same_client",
        ],
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
        name: "deadline_from_the_answer",
        edits: &[Rust {
            file: "backend/stores/redis/attempt.rs",
            from: "        Ok(answer?.learn(sent, connection.clock()).map(|answer| (sent, answer)))",
            to: "        let sent = if mutant!() { Instant::now() } else { sent };
        Ok(answer?.learn(sent, connection.clock()).map(|answer| (sent, answer)))",
        }],
        caught_by: &["redis::lease::the_lease_counts_from_before_the_request"],
    },
    Mutant {
        name: "grouped_deadline_from_the_answer",
        edits: &[Rust {
            file: "backend/stores/redis/attempt.rs",
            from: "                return Ok((self.last_sent, Answer::Granted",
            to: "                let sent = if mutant!() { Instant::now() } else { self.last_sent };
                return Ok((sent, Answer::Granted",
        }],
        caught_by: &["redis_grouped::lease::the_lease_counts_from_before_the_request"],
    },
    Mutant {
        name: "renewal_from_the_answer",
        edits: &[Rust {
            file: "backend/stores/redis/mod.rs",
            from: "Renewal::Renewed(valid_until(sent, due[*number].ttl))",
            to: "Renewal::Renewed(valid_until(if mutant!() { Instant::now() } else { sent }, due[*number].ttl))",
        }],
        caught_by: &["redis::lease::a_renewal_counts_from_before_its_request"],
    },
    Mutant {
        name: "push_from_its_arrival",
        edits: &[Rust {
            file: "backend/stores/redis/queue/place.rs",
            from: "Push::ValidUntil(valid_until(self.proven, push.px))",
            to: "Push::ValidUntil(valid_until(if mutant!() { Instant::now() } else { self.proven }, push.px))",
        }],
        caught_by: &["redis::reconnect::a_grant_that_is_told_late_lets_nobody_in"],
    },
    Mutant {
        name: "readonly_kept",
        edits: &[Rust {
            file: "backend/stores/redis/net/connection.rs",
            from: "Refusal::ReadOnly => (\"its server is a replica\", PAUSE),",
            to: "Refusal::ReadOnly => (\"\", if mutant!() { Duration::from_secs(600) } else { PAUSE }),",
        }],
        caught_by: &[
            "servers redis::failover::a_demoted_primary_is_left_and_what_was_held_is_kept",
            "servers redis::failover::what_a_demoted_primary_refuses_is_repeated_over_a_new_connection",
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
            from: "        if now >= self.deadline() {",
            to: "        if now >= self.deadline() && !mutant!() {",
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
        name: "renewal_without_owner",
        edits: &[Lua { from: "if values[i] == ARGV[i + 1] then redis", to: "if values[i] then redis" }],
        caught_by: &[
            "redis::lease::a_lock_that_the_store_lost_is_noticed_by_renewal_and_not_taken_back",
            "redis::interop::a_lock_that_a_foreign_client_took_away_is_lost_and_not_freed_by_us",
        ],
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
            from: "fn try_again<A: Above>(above: &Arc<A>, hold: &Arc<Hold>) {
",
            to: "fn try_again<A: Above>(above: &Arc<A>, hold: &Arc<Hold>) {
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
        caught_by: &["unit engine::renewal::tests::very_many_are_renewed_in_parts_that_do_not_wait_for_each_other"],
    },
    Mutant {
        name: "no_check_after_the_wait",
        edits: &[Rust {
            file: "lock/acquire/store.rs",
            from: "    let is_short = hold.remaining_unrenewed(now) < engine.least_validity",
            to: "    let is_short = !mutant!() && hold.remaining_unrenewed(now) < engine.least_validity",
        }],
        caught_by: &["redis::lease::an_answer_that_comes_too_late_to_be_of_use_is_given_back"],
    },
    Mutant {
        name: "no_check_after_the_wait_behind_another",
        edits: &[Rust {
            file: "engine/mod.rs",
            from: "        let worth_it = hold.remaining(now) >= self.least_validity(hold.terms.ttl);",
            to: "        let worth_it = mutant!() || hold.remaining(now) >= self.least_validity(hold.terms.ttl);",
        }],
        caught_by: &["unit engine::cohort::tests::a_turn_that_was_lost_before_its_waiter_woke_is_not_handed_out"],
    },
    Mutant {
        name: "subscribes_after_the_check",
        edits: &[
            Rust {
                file: "backend/stores/redis/queue/line.rs",
                from: "        let channel = line.channel(prefix).await?;
",
                to: "        let channel = line.channel(prefix).await?;
        if mutant!() {
            // The check goes first; the subscription is there a little later.
            let (line, channel) = (Arc::clone(&line), Arc::clone(&channel));
            tokio::spawn(async move {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                line.connection.call::<redis::Value>(redis::cmd(\"SUBSCRIBE\").arg(&*channel)).await
            });
        }
",
            },
            Rust {
                file: "backend/stores/redis/queue/line.rs",
                from: "        self.subscribe(prefix, &channel).await?;
",
                to: "        if !mutant!() {
            self.subscribe(prefix, &channel).await?;
        }
",
            },
        ],
        caught_by: &["redis::wait::a_release_while_a_waiter_begins_to_wait_is_not_missed"],
    },
    Mutant {
        name: "nobody_looks_by_itself",
        edits: &[Rust {
            file: "backend/stores/redis/queue/place.rs",
            from: "    fn poll_by(&self, refresh: Instant, now: Instant, random: u32) -> Instant {
",
            to: "    fn poll_by(&self, refresh: Instant, now: Instant, random: u32) -> Instant {
        if mutant!() {
            return Instant::FAR_FUTURE;
        }
",
        }],
        caught_by: &[
            "redis::killed::a_waiter_enters_when_the_lease_of_a_killed_process_ends",
            "redis::interop::a_release_by_a_foreign_holder_lets_a_waiter_in",
        ],
    },
    Mutant {
        name: "nobody_looks_after_a_reconnect",
        edits: &[
            Rust {
                file: "backend/stores/redis/attempt.rs",
                from: "                            notices = None;
                            look_at = heard;
",
                to: "                            notices = None;
                            if !mutant!() {
                                look_at = heard;
                            }
",
            },
            Rust {
                file: "backend/stores/redis/queue/place.rs",
                from: "    fn poll_by(&self, refresh: Instant, now: Instant, random: u32) -> Instant {
",
                to: "    fn poll_by(&self, refresh: Instant, now: Instant, random: u32) -> Instant {
        let refresh = if mutant!() { Instant::FAR_FUTURE } else { refresh };
",
            },
        ],
        caught_by: &["redis::reconnect::cut::a_waiter_gets_the_lock"],
    },
    Mutant {
        name: "a_dead_waiter_has_its_whole_lease",
        edits: &[Lua { from: "tonumber(ttl) < CLAIM_WINDOW_MS and ttl or string.format('%d', CLAIM_WINDOW_MS)", to: "ttl" }],
        caught_by: &[
            "redis::killed::a_killed_waiter_keeps_the_next_one_for_a_bounded_time",
            "redis::killed::a_waiter_killed_with_its_grant_keeps_the_next_one_for_a_bounded_time",
        ],
    },
    Mutant {
        name: "live_waiters_are_dropped",
        edits: &[Rust {
            file: "backend/stores/redis/queue/scripts.rs",
            from: "        (\"STALE_MS\", place::STALE.as_millis()),",
            to: "        (\"STALE_MS\", if mutant!() { 30 } else { place::STALE.as_millis() }),",
        }],
        caught_by: &["redis::wait::a_waiter_that_waits_for_long_keeps_its_place"],
    },
    Mutant {
        name: "a_release_wakes_the_herd",
        edits: &[Lua {
            from: "if is_holder and not opens then",
            to: "if is_holder and not opens then
  redis.call('LPUSH', queue, entry)
  redis.call('DEL', key)
  for _, entry in ipairs(redis.call('LRANGE', queue, '0', '-1')) do
    local place = string.match(entry, '^[^ ]+ (.*)$') or redis.call('HGET', places, entry)
    local number, inbox = string.match(place, '^%d+ %d+ (%d+) (.*)$')
    redis.call('PUBLISH', inbox, 'free ' .. number .. ' 0')
  end
  return 'released'
end
if is_holder and not opens then",
        }],
        caught_by: &["redis::wait::fifty_processes_that_wait_are_no_herd"],
    },
    Mutant {
        name: "a_failed_try_is_released_too",
        edits: &[Rust {
            file: "backend/stores/redis/attempt.rs",
            from: "            (_, Answer::Held { pttl_ms }) if want == Want::Lock => {
                self.open = false;",
            to: "            (_, Answer::Held { pttl_ms }) if want == Want::Lock => {
                self.open = mutant!();",
        }],
        caught_by: &["redis::wait::a_failed_attempt_sends_nothing_after_it"],
    },
    Mutant {
        name: "a_call_at_the_end_of_the_wait_is_ignored",
        edits: &[Rust {
            file: "engine/cohort/follower.rs",
            from: "        match self.handover.try_recv() {
            Ok(handover) => self.accept(handover),",
            to: "        match self.handover.try_recv() {
            Ok(handover) if mutant!() => {
                std::mem::forget(handover);
                Waited::TimedOut(cause)
            }
            Ok(handover) => self.accept(handover),",
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
        caught_by: &["unit engine::unpolled::tests::one_that_was_not_polled_after_its_first_question_is_given_up"],
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
        caught_by: &["unit engine::unpolled::tests::the_shutdown_wakes_one_that_was_not_polled_since_it_asked"],
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
        name: "nothing_is_cleaned_up",
        edits: &[Rust {
            file: "backend/stores/redis/attempt.rs",
            from: "        if self.open {
",
            to: "        if self.open && !mutant!() {
",
        }],
        caught_by: &[
            "redis::cancellation::acquire_of_a_free_lock",
            "redis::cancellation::acquire_of_a_lock_that_another_client_holds",
            "redis::outage::requests_held::an_acquire_that_failed_leaves_nothing",
        ],
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
        name: "tokens_are_the_server_s_time",
        edits: &[
            Lua { from: "if not (last and last >= tonumber(now)) then return now end", to: "if true then return now end" },
        ],
        caught_by: &["redis::clocks::tokens_rise_through_jumps_of_the_server_s_clock"],
    },
    Mutant {
        name: "tokens_are_counted",
        edits: &[
            Lua { from: "local function mint(counter, now)", to: "local function mint(counter)
  local now = '0'" },
        ],
        caught_by: &["redis::fencing::tokens_rise_after_all_data_was_lost"],
    },
    Mutant {
        name: "a_round_trip_for_each_renewal",
        edits: &[
            Rust {
                file: "backend/stores/redis/mod.rs",
                from: "alike.chunks(RENEWALS_PER_CALL)",
                to: "alike.chunks(if mutant!() { 1 } else { RENEWALS_PER_CALL })",
            },
            Rust {
                file: "backend/stores/redis/mod.rs",
                from: "async move { send_renewals(",
                to: "async move {
                        // To a server that is not on this machine.
                        static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
                        let _alone = if mutant!() { Some(ALONE.lock().await) } else { None };
                        if mutant!() {
                            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                        }
                        send_renewals(",
            },
        ],
        caught_by: &[
            "redis::lease::many_held_locks_are_all_renewed",
            "servers redis::renewal::ten_thousand_held_locks_are_all_renewed",
        ],
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
            file: "engine/mod.rs",
            from: "        self.cohorts.dissolve(hold);
",
            to: "        if mutant!() {
            for turn in hold.others() {
                self.leave_in_background(&turn, Instant::now());
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
            file: "engine/mod.rs",
            from: "            let stopped = now + margin(hold.terms.ttl);",
            to: "            let stopped = if mutant!() { now } else { now + margin(hold.terms.ttl) };",
        }],
        caught_by: &["zookeeper::loss::a_body_is_gone_before_another_enters_when_max_hold_is_over"],
    },
    Mutant {
        name: "a_refused_renewal_is_tried_again",
        edits: &[Rust {
            file: "engine/renewal.rs",
            from: "            Renewal::NotHeld => lost(",
            to: "            Renewal::NotHeld if mutant!() => try_again(&above, &hold),
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
        name: "another_slot_for_what_is_kept_beside_a_lock",
        edits: &[Rust {
            file: "backend/stores/redis/names.rs",
            from: "            HashTag::Tag | HashTag::Malformed =>",
            to: "            HashTag::None if mutant!() => write!(f, \"{stored}:~{FORMAT}:{what}\"),
            HashTag::Tag | HashTag::Malformed =>",
        }],
        caught_by: &[
            "unit backend::stores::redis::names::tests::what_is_kept_beside_a_holder_stays_under_the_prefix_and_in_its_slot",
        ],
    },
    Mutant {
        name: "never_rushes_behind_others",
        edits: &[Rust {
            file: "backend/stores/redis/queue/place.rs",
            from: "Rush::after_look(self.rush, hold != last, now)",
            to: "Rush::after_look(self.rush, hold != last && !mutant!(), now)",
        }],
        caught_by: &[
            "unit backend::stores::redis::queue::place::tests::the_first_rushes_now_and_then_behind_clients_that_leave_no_pause",
        ],
    },
    Mutant {
        name: "rushes_all_the_time",
        edits: &[Rust {
            file: "backend/stores/redis/queue/place.rs",
            from: "now < rush.began + RUSH_SHARE * rush.length {",
            to: "now < rush.began + if mutant!() { 1 } else { RUSH_SHARE } * rush.length {",
        }],
        caught_by: &[
            "unit backend::stores::redis::queue::place::tests::the_first_rushes_now_and_then_behind_clients_that_leave_no_pause",
        ],
    },
    Mutant {
        name: "push_without_proof",
        edits: &[Rust {
            file: "backend/stores/redis/queue/place.rs",
            from: "        if !push.proven || push",
            to: "        if !(push.proven || mutant!()) || push",
        }],
        caught_by: &["servers redis::forged_messages::a_grant_that_the_server_did_not_make_makes_no_second_holder"],
    },
    Mutant {
        name: "secret_in_free",
        edits: &[Lua {
            from: "'free ' .. first.number .. ' ' .. length",
            to: "'free ' .. first.number .. ' ' .. length .. ' ' .. first.owner",
        }],
        caught_by: &["servers redis::forged_messages::nothing_that_is_published_is_a_secret"],
    },
    Mutant {
        name: "unbounded_px",
        edits: &[Rust {
            file: "backend/stores/redis/queue/place.rs",
            from: "push.px > ttl {",
            to: "(push.px > ttl && !mutant!()) {",
        }],
        caught_by: &[
            "unit backend::stores::redis::queue::place::tests::a_grant_without_a_proof_or_longer_than_what_was_asked_for_is_doubtful",
        ],
    },
    Mutant {
        name: "a_look_for_each_message",
        edits: &[Rust {
            file: "backend/stores/redis/attempt.rs",
            from: "Push::Doubtful => look_at = look_at.min(heard + place::LOOK_ON_DOUBT),",
            to: "Push::Doubtful => look_at = if mutant!() { heard } else { look_at.min(heard + place::LOOK_ON_DOUBT) },",
        }],
        caught_by: &["servers redis::forged_messages::a_flood_of_messages_neither_lets_a_waiter_in_nor_keeps_it_out"],
    },
    Mutant {
        name: "open_window_ended_by_the_releaser",
        edits: &[Lua { from: "first and redis.call('PTTL', open()) or -1", to: "-1" }],
        caught_by: &["servers redis::queue::a_lock_that_is_left_open_is_open_to_all_but_us"],
    },
    Mutant {
        name: "late_execution_granted",
        edits: &[
            Lua { from: "if tonumber(now) > tonumber(limit) then return 'late ' .. now end", to: "" },
            Lua { from: "if now > tonumber(limit) then return 'late ' .. now_text end", to: "" },
            Lua { from: "if tonumber(now) > tonumber(ARGV[2]) then return { now } end", to: "" },
        ],
        caught_by: &["servers redis::queue::a_stall_of_the_server_leaves_no_holder_that_nobody_knows"],
    },
    Mutant {
        name: "a_late_refusal_is_not_learnt_from",
        edits: &[Rust {
            file: "backend/stores/redis/queue/answer.rs",
            from: "(Some(time), None) => clock.replace(Instant::now(), time),",
            to: "(Some(time), None) if !mutant!() => clock.replace(Instant::now(), time),
            (Some(_), None) => {}",
        }],
        caught_by: &["servers redis::queue::jumps_of_the_server_s_clock_cost_one_round_trip_at_most"],
    },
    Mutant {
        name: "refused_attempt_that_writes",
        edits: &[Lua {
            from: "local holder = redis.call('GET', KEYS[1])
if not holder and mode",
            to: "local holder = redis.call('SET', KEYS[4], '1') and redis.call('GET', KEYS[1])
if not holder and mode",
        }],
        caught_by: &[
            "servers redis::queue::a_refused_attempt_writes_nothing_and_is_answered_also_when_memory_is_full",
        ],
    },
    Mutant {
        name: "a_look_that_walks_the_queue",
        edits: &[Lua {
            from: "redis.call('LPOS', queue, owner, 'MAXLEN', FAR)",
            to: "redis.call('LPOS', queue, owner)",
        }],
        caught_by: &["servers redis::queue::a_look_costs_the_same_however_many_wait"],
    },
    Mutant {
        name: "a_place_that_is_given_up_counts_as_a_lease",
        edits: &[Rust {
            file: "backend/stores/redis/attempt.rs",
            from: "let of_place = if self.request.wait == Wait::No {",
            to: "let of_place = if self.request.wait == Wait::No || mutant!() {",
        }],
        caught_by: &[
            "servers redis::release::a_place_given_up_in_an_outage_of_many_leases_leaves_the_queue_after_it",
        ],
    },
    Mutant {
        name: "a_place_in_the_list_is_not_found",
        edits: &[Lua { from: "    place = near(owner)\n", to: "" }],
        caught_by: &["servers redis::places::places_are_found_in_the_list_and_in_the_hash"],
    },
    Mutant {
        name: "a_refreshed_place_stays_in_the_list",
        edits: &[Lua { from: "    redis.call('LSET', queue, index, owner)\n", to: "" }],
        caught_by: &["servers redis::places::places_are_found_in_the_list_and_in_the_hash"],
    },
    Mutant {
        name: "the_expiry_of_a_busy_queue_is_left_to_its_first_waiter",
        edits: &[Lua { from: "if rank == 1 or redis.call('PTTL', KEYS[2]) < STALE_MS then", to: "if rank == 1 then" }],
        caught_by: &[
            "servers redis::places::an_entry_costs_few_commands_and_its_queue_outlasts_the_places_in_it",
        ],
    },
    Mutant {
        name: "quorum_validity_from_the_answer",
        edits: &[Rust {
            file: "backend/stores/redis/race/attempt.rs",
            from: "let valid_until = valid_until(self.sent, self.request.ttl);",
            to: "let sent = if mutant!() { Instant::now() } else { self.sent };
        let valid_until = valid_until(sent, self.request.ttl);",
        }],
        caught_by: &["redlock::lease::the_lease_counts_from_before_the_request"],
    },
    Mutant {
        name: "quorum_renewal_from_the_answer",
        edits: &[Rust {
            file: "backend/stores/redis/race/renewal.rs",
            from: "Renewal::Renewed(valid_until(sent, id.ttl))",
            to: "Renewal::Renewed(valid_until(if mutant!() { Instant::now() } else { sent }, id.ttl))",
        }],
        caught_by: &["redlock::lease::a_renewal_counts_from_before_its_request"],
    },
    Mutant {
        name: "half_of_the_nodes_is_enough",
        edits: &[Rust {
            file: "backend/stores/redis/race/quorum.rs",
            from: "pub(super) const fn majority(nodes: usize) -> usize {\n    nodes / 2 + 1",
            to: "pub(super) fn majority(nodes: usize) -> usize {\n    nodes / 2 + usize::from(!mutant!())",
        }],
        caught_by: &[
            "unit backend::stores::redis::race::quorum::tests::two_holders_always_share_a_node",
            "servers redlock::minority::what_a_minority_granted_is_free_when_the_attempt_ends",
        ],
    },
    Mutant {
        name: "a_majority_of_the_nodes_that_can_be_reached",
        edits: &[
            Rust {
                file: "backend/stores/redis/race/attempt.rs",
                from: "                    failures.push((node, failure));
                    answers.add(None);
",
                to: "                    failures.push((node, failure));
                    answers.add(None);
                    if mutant!() {
                        fences.nodes -= 1;
                    }
",
            },
            Rust {
                file: "backend/stores/redis/race/quorum.rs",
                from: "pub(super) struct Fences {\n    nodes: usize,",
                to: "pub(super) struct Fences {\n    pub(super) nodes: usize,",
            },
        ],
        caught_by: &["servers redlock::minority::two_of_five_may_die_and_a_third_is_an_outage_that_heals"],
    },
    Mutant {
        name: "a_minority_is_kept",
        edits: &[Rust {
            file: "backend/stores/redis/race/attempt.rs",
            from: "        self.lease(FencingToken::from_micros(0)).withdraw_from(granted).await;
",
            to: "        if !mutant!() {
            self.lease(FencingToken::from_micros(0)).withdraw_from(granted).await;
        }
",
        }],
        caught_by: &["servers redlock::minority::what_a_minority_granted_is_free_when_the_attempt_ends"],
    },
    Mutant {
        name: "other_processes_are_not_known_to_wait",
        edits: &[Rust {
            file: "backend/stores/redis/race/attempt.rs",
            from: "others_wait |= answer % 2 == 1;",
            to: "others_wait |= answer % 2 == 1 && !mutant!();",
        }],
        caught_by: &["servers redlock::waiting::a_process_gets_in_beside_one_with_many_tasks"],
    },
    Mutant {
        name: "what_a_refused_attempt_gives_back_is_announced",
        edits: &[Rust {
            file: "backend/stores/redlock/protocol.rs",
            from: "LazyLock::new(|| release(false));",
            to: "LazyLock::new(|| release(mutant!()));",
        }],
        caught_by: &["servers redlock::waiting::waiters_behind_a_bare_majority_do_not_wake_each_other"],
    },
    Mutant {
        name: "a_fence_is_written_back_whoever_holds_the_lock",
        edits: &[Lua {
            from: "local ours = with and tonumber(with) <= tonumber(fence)",
            to: "local ours = true",
        }],
        caught_by: &["servers redlock::fences::a_grant_that_nodes_lost_before_its_fence_was_written_back_is_none"],
    },
    Mutant {
        name: "a_renewal_creates_what_was_lost",
        edits: &[Lua {
            from: "  local ours = held(holder, ARGV[3 * i - 1])
  if ours then
    redis.call('PEXPIRE', holder, ARGV[3 * i])",
            to: "  local ours = held(holder, ARGV[3 * i - 1])
      or redis.call('SET', holder, ARGV[3 * i - 1] .. ':' .. ARGV[3 * i + 1], 'NX')
  if ours then
    redis.call('PEXPIRE', holder, ARGV[3 * i])",
        }],
        caught_by: &["servers redlock::renewal::a_hold_that_a_majority_lost_is_lost_and_not_created_again"],
    },
    Mutant {
        name: "a_node_that_forgot_its_locks_votes",
        edits: &[Rust {
            file: "backend/stores/redis/race/nodes.rs",
            from: "        Some(Duration::ZERO) => return Ok(()),",
            to: "        Some(wait) if wait.is_zero() || mutant!() => return Ok(()),",
        }],
        caught_by: &["servers redlock::rules::a_node_that_may_have_forgotten_locks_votes_after_the_longest_lease"],
    },
    Mutant {
        name: "a_node_with_a_newer_grant_is_joined",
        edits: &[Lua { from: "if not ours and last <= tonumber(fence) and", to: "if not ours and" }],
        caught_by: &["servers redlock::renewal::a_node_with_a_newer_grant_is_not_joined"],
    },
    Mutant {
        name: "a_release_is_left_to_the_nodes_that_answer",
        edits: &[Rust {
            file: "backend/stores/redis/race/leftovers.rs",
            from: "        if let Some(release) = self.release.take() {",
            to: "        if let Some(release) = self.release.take().filter(|_| !mutant!()) {",
        }],
        caught_by: &["servers redlock::minority::a_release_reaches_a_node_that_was_away"],
    },
    Mutant {
        name: "a_release_is_repeated_for_ever",
        edits: &[Rust {
            file: "backend/stores/redis/race/leftovers.rs",
            from: "!release.ends.has_passed()",
            to: "mutant!() || !release.ends.has_passed()",
        }],
        caught_by: &["servers redlock::minority::a_release_is_not_repeated_for_longer_than_its_lease"],
    },
    Mutant {
        name: "servers_that_swapped_their_addresses_are_kept_out",
        edits: &[Rust {
            file: "backend/stores/redis/race/node.rs",
            from: "        run_ids.remove(&self.number);",
            to: "        if !mutant!() {
            run_ids.remove(&self.number);
        }",
        }],
        caught_by: &["servers redlock::minority::servers_that_swap_their_addresses_are_nodes_again"],
    },
    Mutant {
        name: "acquisitions_overtake_the_release_before_them",
        edits: &[Rust {
            file: "backend/stores/redis/race/operation.rs",
            from: "    for part in parts {\n",
            to: "    parts.sort_by_key(|part| mutant!() && part.kind == Kind::Release);\n    for part in parts {\n",
        }],
        caught_by: &["servers redlock::minority::a_lock_that_is_taken_again_at_once_is_on_all_nodes"],
    },
    Mutant {
        name: "a_release_waits_for_all_nodes",
        edits: &[Rust {
            file: "backend/stores/redis/race/hold.rs",
            from: "            if (is_known && !is_patient) || count.is_out_of_reach() {",
            to: "            if (is_known && !is_patient && !mutant!()) || count.is_out_of_reach() {",
        }],
        caught_by: &["servers redlock::minority::one_hung_node_costs_nothing"],
    },
    Mutant {
        name: "holds_are_added_up_on_the_server",
        edits: &[Lua {
            from: "redis.call('HSET', name, owner, ARGV[3 * i + 1])",
            to: "redis.call('HINCRBY', name, owner, 1)",
        }],
        caught_by: &["servers redisson::the_hold_count_is_the_depth_of_the_scope"],
    },
    Mutant {
        name: "a_release_without_its_message",
        edits: &[Lua {
            from: "if redis.call('EXISTS', name) == 0 then redis.call('PUBLISH', channel(name), '0') end",
            to: "",
        }],
        caught_by: &["servers redisson::java_and_ours_exclude_and_wake_each_other"],
    },
    Mutant {
        name: "an_unlock_by_another_field",
        edits: &[Lua {
            from: "local ours = held(name, ARGV[3 * i - 1])\n  if ours then redis.call('DEL', name) end",
            to: "local ours = redis.call('EXISTS', name) == 1\n  if ours then redis.call('DEL', name) end",
        }],
        caught_by: &[
            "redisson::ownership::a_release_after_the_end_of_the_lease_says_lost_and_spares_the_successor",
        ],
    },
    Mutant {
        name: "a_waiter_sleeps_until_it_is_told",
        edits: &[Rust {
            file: "backend/stores/redis/race/attempt.rs",
            from: "() = request.progress.sleep_until(look.min(end)) => {}",
            to: "() = request.progress.sleep_until(if mutant!() { end } else { look.min(end) }) => {}",
        }],
        caught_by: &["servers redisson::a_hold_that_ends_without_a_message_is_noticed"],
    },
    Mutant {
        name: "no_attempt_after_the_subscription",
        edits: &[Rust {
            file: "backend/stores/redis/race/attempt.rs",
            from: "            // Asks again at once: the lock may have been released before the subscription.\n",
            to: "            if mutant!() {
                request.progress.sleep_until(end.min(now + Duration::from_millis(200))).await;
            }\n",
        }],
        caught_by: &["servers redisson::a_waiter_asks_again_as_soon_as_it_has_subscribed"],
    },
    Mutant {
        name: "equal_tokens_at_the_end_of_the_counter",
        edits: &[Lua { from: "if last >= LAST_FENCE then", to: "if false then" }],
        caught_by: &[
            "servers redis::queue::a_counter_of_fences_that_has_no_numbers_left_is_named_and_one_that_is_none_is_mended",
        ],
    },
    Mutant {
        name: "heartbeats_that_the_leader_answers_alone",
        edits: &[Rust {
            file: "backend/stores/zookeeper/heartbeat.rs",
            from: "    session.write_barrier().await.map(|()| Probe::Write)",
            to: "    if mutant!() { session.client().sync(\"/\").await? } else { session.write_barrier().await? }
    Ok(Probe::Write)",
        }],
        caught_by: &[
            "servers zookeeper_ensemble::the_holder_at_a_leader_that_was_replaced_is_told_before_the_next_one_holds",
        ],
    },
    Mutant {
        name: "heartbeats_that_any_server_answers",
        edits: &[Rust {
            file: "backend/stores/zookeeper/heartbeat.rs",
            from: "async fn probe(session: Arc<Session>) -> Result<Probe, zk::Error> {",
            to: "async fn probe(session: Arc<Session>) -> Result<Probe, zk::Error> {
    if mutant!() { return session.client().check_stat(\"/\").await.map(|_| Probe::Write); }",
        }],
        caught_by: &[
            "servers zookeeper_ensemble::the_holder_at_a_follower_that_is_cut_off_is_told_before_the_next_one_holds",
        ],
    },
    Mutant {
        name: "a_mute_server_is_left_late",
        edits: &[Rust {
            file: "backend/stores/zookeeper/config.rs",
            from: "        let enough = Duration::from_secs(2).min(self.session_timeout / 3);",
            to: "        let enough = if mutant!() { Duration::MAX } else { Duration::from_secs(2) }.min(self.session_timeout / 3);",
        }],
        caught_by: &["servers zookeeper::outages::a_mute_server_for_three_eighths_of_a_session_costs_no_lock"],
    },
    Mutant {
        name: "a_sign_of_life_counts_from_its_sending",
        edits: &[Rust {
            file: "backend/stores/zookeeper/validity.rs",
            from: "        earlier.answered + self.timeout / 4 <= sent",
            to: "        (if mutant!() { earlier.sent } else { earlier.answered }) + self.timeout / 4 <= sent",
        }],
        caught_by: &[
            "unit backend::stores::zookeeper::validity::tests::a_sign_of_life_that_was_late_on_its_way_counts_from_when_it_had_surely_arrived",
        ],
    },
    Mutant {
        name: "a_loss_that_the_servers_tell",
        edits: &[Rust {
            file: "backend/stores/zookeeper/validity.rs",
            from: "        Some(valid_until(reported.sent, self.timeout))",
            to: "        Some(valid_until(reported.sent, if mutant!() { self.timeout * 9 } else { self.timeout }))",
        }],
        // On a cut connection the driver's own limit comes in time.
        caught_by: &[
            "servers zookeeper_ensemble::a_leader_that_nobody_follows_keeps_no_hold_alive",
            "servers zookeeper_ensemble::the_holder_at_a_follower_that_is_cut_off_is_told_before_the_next_one_holds",
        ],
    },
    Mutant {
        name: "tokens_are_the_numbers_of_the_queue",
        edits: &[Rust {
            file: "backend/stores/zookeeper/attempt.rs",
            from: "self.contender.made().map_or(0, |made| made.czxid);",
            to: "self.contender.made().map_or(0, |made| if mutant!() {
                made.name.rsplit_once('-').map_or(0, |(_, number)| number.parse::<i64>().unwrap_or(0) + 1)
            } else { made.czxid });",
        }],
        caught_by: &["servers zookeeper::tokens_rise_when_a_lock_s_node_is_deleted_and_made_again"],
    },
    Mutant {
        name: "everybody_watches_the_holder",
        edits: &[Rust {
            file: "backend/stores/zookeeper/queue.rs",
            from: "        .max();",
            to: "        .reduce(|one, other| if mutant!() { one.min(other) } else { one.max(other) });",
        }],
        caught_by: &["servers zookeeper::a_hand_over_wakes_exactly_one_of_two_hundred_waiters"],
    },
    Mutant {
        name: "a_node_whose_answer_was_lost_is_not_looked_for",
        edits: &[Rust {
            file: "backend/stores/zookeeper/hold.rs",
            from: "        let ours = stat.filter(|stat| stat.ephemeral_owner == client.session_id().0);",
            to: "        let ours = stat.filter(|stat| stat.ephemeral_owner == client.session_id().0 && !mutant!());",
        }],
        caught_by: &[
            "zookeeper::reconnect::an_answer_lost_at_any_call_leaves_nothing_and_grants_nothing_twice",
        ],
    },
];
