//! Mistakes in the locks of one Redis server, with a queue.

use super::{
    Edit::{Rust, Script},
    Mutant,
};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a_long_lease_is_a_power_of_ten",
        edits: &[Script {
            from: "return string.format('held %.0f ', left) .. now_text",
            to: "return 'held ' .. left .. ' ' .. now_text",
        }],
        caught_by: &["redis::interop::a_foreign_lease_of_any_length_excludes_us"],
    },
    Mutant {
        name: "a_missing_right_to_the_time_has_no_name",
        edits: &[Script { from: "local t = redis.pcall('TIME')", to: "local t = redis.call('TIME')" }],
        caught_by: &["servers redis::permissions::each_permission_that_is_missing_is_named"],
    },
    Mutant {
        name: "renewals_are_failed_by_one_of_their_names",
        edits: &[Rust {
            file: "backend/stores/redis/mod.rs",
            from: "if answer.as_ref().is_err_and(|error| !error.is_retryable()) && part.len() > 1 {",
            to: "if answer.as_ref().is_err_and(|error| !error.is_retryable()) && part.len() > 1 && !mutant!() {",
        }],
        caught_by: &[
            "servers redis::permissions::a_name_that_is_forbidden_while_it_is_held_ends_no_other_lease",
        ],
    },
    Mutant {
        name: "release_without_owner_check",
        edits: &[Script {
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
        edits: &[Script { from: "if values[i - 1] == ARGV[i] and", to: "if values[i - 1] and" }],
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
                file: "engine/cohort/entry.rs",
                from: "State::Holding { turn, .. } if turn.hold.is_valid(now) =>",
                to: "State::Holding { turn, .. } if turn.hold.is_valid(now) && !mutant!() =>",
            },
        ],
        caught_by: &[
            "redis::ownership::a_lock_asked_for_again_keeps_its_first_hold",
            "redis::ownership::an_owner_is_known_by_another_name_each_time",
            "redis::ownership::a_lost_guard_does_not_release_a_later_hold_of_the_same_client",
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
            file: "backend/kits/redis/net/connection.rs",
            from: "Refusal::ReadOnly => (\"its server is a replica\", PAUSE),",
            to: "Refusal::ReadOnly => (\"\", if mutant!() { Duration::from_secs(600) } else { PAUSE }),",
        }],
        caught_by: &[
            "servers redis::failover::a_demoted_primary_is_left_and_what_was_held_is_kept",
            "servers redis::failover::what_a_demoted_primary_refuses_is_repeated_over_a_new_connection",
        ],
    },
    Mutant {
        name: "renewal_without_owner",
        edits: &[Script { from: "if values[i] == ARGV[i + 1] then redis", to: "if values[i] then redis" }],
        caught_by: &[
            "redis::lease::a_lock_that_the_store_lost_is_noticed_by_renewal_and_not_taken_back",
            "redis::interop::a_lock_that_a_foreign_client_took_away_is_lost_and_not_freed_by_us",
        ],
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
        edits: &[Script {
            from: "tonumber(ttl) < tonumber(CLAIM_WINDOW_MS) and ttl or CLAIM_WINDOW_MS",
            to: "ttl",
        }],
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
        edits: &[Script {
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
            from: "            (_, Answer::Held { pttl_ms }) if want == Need::Lock => {
                self.open = false;",
            to: "            (_, Answer::Held { pttl_ms }) if want == Need::Lock => {
                self.open = mutant!();",
        }],
        caught_by: &["redis::wait::a_failed_attempt_sends_nothing_after_it"],
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
        name: "tokens_are_the_server_s_time",
        edits: &[Script {
            from: "if not (last and last >= tonumber(now)) then return now end",
            to: "if true then return now end",
        }],
        caught_by: &["redis::clocks::tokens_rise_through_jumps_of_the_server_s_clock"],
    },
    Mutant {
        name: "tokens_are_counted",
        edits: &[Script {
            from: "local function mint(counter, now)",
            to: "local function mint(counter)
  local now = '0'",
        }],
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
        name: "another_slot_for_what_is_kept_beside_a_lock",
        edits: &[Rust {
            file: "backend/kits/redis/format.rs",
            from: "            HashTag::Tag | HashTag::Malformed =>",
            to: "            HashTag::None if mutant!() => write!(f, \"{stored}:~{FORMAT}:{what}\"),
            HashTag::Tag | HashTag::Malformed =>",
        }],
        caught_by: &[
            "unit backend::kits::redis::format::tests::what_is_kept_beside_a_holder_stays_under_the_prefix_and_in_its_slot",
        ],
    },
    Mutant {
        name: "never_rushes_behind_others",
        edits: &[Rust {
            file: "backend/stores/redis/queue/place.rs",
            from: "FastPolling::after_look(self.rush, hold != last, now)",
            to: "FastPolling::after_look(self.rush, hold != last && !mutant!(), now)",
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
        caught_by: &[
            "servers redis::forged_messages::a_grant_that_the_server_did_not_make_makes_no_second_holder",
        ],
    },
    Mutant {
        name: "secret_in_free",
        edits: &[Script {
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
        caught_by: &[
            "servers redis::forged_messages::a_flood_of_messages_neither_lets_a_waiter_in_nor_keeps_it_out",
        ],
    },
    Mutant {
        name: "open_window_ended_by_the_releaser",
        edits: &[Script { from: "first and redis.call('PTTL', open()) or -1", to: "-1" }],
        caught_by: &["servers redis::queue::a_lock_that_is_left_open_is_open_to_all_but_us"],
    },
    Mutant {
        name: "late_execution_granted",
        edits: &[
            Script { from: "if tonumber(now) > tonumber(limit) then return 'late ' .. now end", to: "" },
            Script { from: "if now > tonumber(limit) then return 'late ' .. now_text end", to: "" },
            Script { from: "if tonumber(now) > tonumber(ARGV[2]) then return { now } end", to: "" },
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
        edits: &[Script {
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
        edits: &[Script {
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
        edits: &[Script { from: "    place = near(owner)\n", to: "" }],
        caught_by: &["servers redis::places::places_are_found_in_the_list_and_in_the_hash"],
    },
    Mutant {
        name: "a_refreshed_place_stays_in_the_list",
        edits: &[Script { from: "    redis.call('LSET', queue, index, owner)\n", to: "" }],
        caught_by: &["servers redis::places::places_are_found_in_the_list_and_in_the_hash"],
    },
    Mutant {
        name: "a_queue_that_is_kept_is_forgotten_by_batches",
        edits: &[Script {
            from: "  redis.call('SET', string.sub(counter, 1, -6) .. 'queues', '', 'PX', RETENTION_MS)\nend",
            to: "end",
        }],
        caught_by: &["servers redis::places::batches_find_a_queue_as_long_as_it_lasts"],
    },
    Mutant {
        name: "the_expiry_of_a_busy_queue_is_left_to_its_first_waiter",
        edits: &[Script {
            from: "if rank == 1 or redis.call('PTTL', KEYS[2]) < STALE_MS then",
            to: "if rank == 1 then",
        }],
        caught_by: &[
            "servers redis::places::an_entry_costs_few_commands_and_its_queue_outlasts_the_places_in_it",
        ],
    },
    Mutant {
        name: "equal_tokens_at_the_end_of_the_counter",
        edits: &[Script { from: "if last >= LAST_FENCE then", to: "if false then" }],
        caught_by: &[
            "servers redis::queue::a_counter_of_fences_that_has_no_numbers_left_is_named_and_one_that_is_none_is_mended",
        ],
    },
    Mutant {
        name: "a_lock_granted_without_a_way_to_renew_it",
        edits: &[Rust {
            file: "backend/kits/redis/net/connections.rs",
            from: "        lock(&self.renewals).upgrade()",
            to: "        if mutant!() {
            return true;
        }
        lock(&self.renewals).upgrade()",
        }],
        caught_by: &[
            "redis::one_connection::a_lock_that_could_not_be_renewed_is_not_granted",
            "redlock::one_connection::a_lock_that_could_not_be_renewed_is_not_granted",
        ],
    },
    Mutant {
        name: "a_user_without_a_password_is_the_default_user",
        edits: &[
            Rust {
                file: "backend/kits/redis/config.rs",
                from: "        Some(user) if !user.is_empty()",
                to: "        Some(user) if !mutant!() && !user.is_empty()",
            },
            Rust {
                file: "backend/kits/redis/config.rs",
                from: "            if !parts.credentials.is_some_and(",
                to: "            if !mutant!() && !parts.credentials.is_some_and(",
            },
        ],
        caught_by: &[
            "servers redis::urls::a_user_with_an_empty_password_is_that_user_and_one_without_is_refused",
        ],
    },
];
