//! Mistakes in the queue of a Redis server: its waiters, its messages, its places.

use super::{
    Edit::{Rust, Script},
    Mutant,
};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "subscribes_after_the_check",
        edits: &[
            Rust {
                file: "backend/stores/redis/queue/line.rs",
                from: "            None => cold(line.open_channel(key)).await?,
        };
",
                to: "            None => cold(line.open_channel(key)).await?,
        };
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
            from: "        if !proven || px",
            to: "        if !(proven || mutant!()) || px",
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
            from: "px > ttl {",
            to: "(px > ttl && !mutant!()) {",
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
        edits: &[Script { from: "first and redis.call('PTTL', open) or -1", to: "-1" }],
        caught_by: &["servers redis::queue::a_lock_that_is_left_open_is_open_to_all_but_us"],
    },
    Mutant {
        name: "refused_attempt_that_writes",
        edits: &[Script {
            from: "local holder = is_alone and redis.call('GET', KEYS[3])",
            to: "local holder = is_alone and redis.call('SET', KEYS[1], '1') and redis.call('GET', KEYS[3])",
        }],
        caught_by: &[
            "servers redis::queue::a_refused_attempt_writes_nothing_and_is_answered_also_when_memory_is_full",
        ],
    },
    Mutant {
        name: "a_look_that_walks_the_queue",
        edits: &[Script {
            from: "redis.call('LPOS', queue, owner, 'MAXLEN', FAR_RANK)",
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
        edits: &[Script { from: "  redis.call('SET', queues, '', 'PX', RETENTION_MS)\nend", to: "end" }],
        caught_by: &["servers redis::places::batches_find_a_queue_as_long_as_it_lasts"],
    },
    Mutant {
        name: "a_batch_takes_locks_from_their_waiters",
        edits: &[Script { from: "local passes = not (has_queues and", to: "local passes = not (nil and" }],
        caught_by: &["servers redis::queue::a_batch_takes_no_lock_that_has_waiters"],
    },
    Mutant {
        name: "a_batched_release_forgets_the_waiters",
        edits: &[Script { from: "not is_ours or has_queues and", to: "held[i] ~= values[i] or nil and" }],
        caught_by: &["servers redis::queue::a_release_in_a_batch_hands_the_lock_to_a_waiter"],
    },
    Mutant {
        name: "one_batch_for_two_domains",
        edits: &[Rust {
            file: "backend/stores/redis/queue/operation.rs",
            from: "    process.domain(one) == process.domain(other)",
            to: "    mutant!() || process.domain(one) == process.domain(other)",
        }],
        caught_by: &[
            "servers redis::queue::locks_under_two_prefixes_have_two_counters_of_fences_also_in_one_batch",
        ],
    },
    Mutant {
        name: "the_expiry_of_a_busy_queue_is_left_to_its_first_waiter",
        edits: &[Script {
            from: "if rank == 1 or redis.call('PTTL', KEYS[4]) < STALE_MS then",
            to: "if rank == 1 then",
        }],
        caught_by: &[
            "servers redis::places::an_entry_costs_few_commands_and_its_queue_outlasts_the_places_in_it",
        ],
    },
];
