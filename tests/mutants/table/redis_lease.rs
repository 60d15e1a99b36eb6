//! Mistakes in the leases of a Redis server: owners, deadlines, fencing tokens.

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
        edits: &[Script { from: "if not is_ours or", to: "if not held[i] or" }],
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
            from: "            if let Some(answer) = answer? {
                return",
            to: "            if mutant!() {
                self.last_sent = Instant::now();
            }
            if let Some(answer) = answer? {
                return",
        }],
        caught_by: &["redis::lease::the_lease_counts_from_before_the_request"],
    },
    Mutant {
        name: "grouped_deadline_from_the_answer",
        edits: &[Rust {
            file: "backend/stores/redis/attempt.rs",
            from: "Ok(Some(answer)) => return Ok((self.last_sent, answer)),",
            to: "Ok(Some(answer)) => return Ok((if mutant!() { Instant::now() } else { self.last_sent }, answer)),",
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
        name: "renewal_without_owner",
        edits: &[Script { from: "if value and string.sub(value, -#ours) == ours then", to: "if value then" }],
        caught_by: &[
            "redis::lease::a_lock_that_the_store_lost_is_noticed_by_renewal_and_not_taken_back",
            "redis::interop::a_lock_that_a_foreign_client_took_away_is_lost_and_not_freed_by_us",
        ],
    },
    Mutant {
        name: "a_failed_try_is_released_too",
        edits: &[Rust {
            file: "backend/stores/redis/attempt.rs",
            from: "            (_, Answer::Held { pttl_ms, holder }) if want == Need::Lock => {
                self.open = false;",
            to: "            (_, Answer::Held { pttl_ms, holder }) if want == Need::Lock => {
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
            from: "if not (last and last >= now_number) then return now end",
            to: "if true then return now end",
        }],
        caught_by: &["redis::clocks::tokens_rise_through_jumps_of_the_server_s_clock"],
    },
    Mutant {
        name: "tokens_are_counted",
        edits: &[Script {
            from: "local function mint(counter, now, now_number)",
            to: "local function mint(counter)
  local now, now_number = '0', 0",
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
                from: "    match &node.replicas {
",
                to: "    // To a server that is not on this machine.
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _alone = if mutant!() { Some(ALONE.lock().await) } else { None };
    if mutant!() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    match &node.replicas {
",
            },
        ],
        caught_by: &[
            "redis::lease::many_held_locks_are_all_renewed",
            "servers redis::renewal::ten_thousand_held_locks_are_all_renewed",
        ],
    },
    Mutant {
        name: "late_execution_granted",
        edits: &[
            Script { from: "if tonumber(now) > tonumber(limit) then return 'late ' .. now end", to: "" },
            Script { from: "if now > tonumber(limit) then return 'late ' .. now_text end", to: "" },
            Script { from: "if now_number > tonumber(limit) then return 'late ' .. now end", to: "" },
            Script { from: "if now_number > tonumber(ARGV[1]) then return { now } end", to: "" },
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
];
