//! Mistakes about locks that operators look at or take from their holders.

use super::{
    Edit::{Rust, Script},
    Mutant,
};

pub const MUTANTS: &[Mutant] = &[
    // The engine.
    Mutant {
        name: "a_notice_of_a_revocation_renews_nothing",
        edits: &[Rust {
            file: "engine/renewal.rs",
            from: "            schedule.hasten(&early.names, now);",
            to: "            if !mutant!() {
                schedule.hasten(&early.names, now);
            }",
        }],
        caught_by: &[
            "memory::revoke::a_live_holder_is_told_soon_and_the_lock_is_granted_when_it_has_left",
            "memory::revoke::a_lock_is_free_at_once_by_force_and_its_holder_learns_of_it",
        ],
    },
    Mutant {
        name: "a_name_is_searched_for_once",
        edits: &[Rust {
            file: "engine/renewal/early.rs",
            from: "        let mut searched = mem::replace(&mut names.again, new.clone());",
            to: "        let mut searched = mem::take(&mut names.again);
        if !mutant!() {
            names.again.clone_from(&new);
        }",
        }],
        caught_by: &[
            "unit engine::renewal::early::tests::each_name_is_searched_for_twice_and_searches_are_rare",
        ],
    },
    Mutant {
        name: "a_revoked_lock_is_kept_for_hold_at_least",
        edits: &[Rust {
            file: "engine/turn_end.rs",
            from: "now < turn.retained_until() && !hold.is_revoked()) {",
            to: "now < turn.retained_until() && (mutant!() || !hold.is_revoked())) {",
        }],
        caught_by: &["memory::revoke::a_holder_that_was_to_keep_its_lock_for_longer_gives_it_up_as_well"],
    },
    Mutant {
        name: "a_revoked_lock_stays_in_the_background",
        edits: &[Rust {
            file: "engine/turn_end.rs",
            from: "        if was_retained {",
            to: "        if was_retained && !mutant!() {",
        }],
        caught_by: &["memory::revoke::a_lock_that_is_kept_in_the_background_is_given_up"],
    },
    // Memory.
    Mutant {
        name: "a_revoked_lease_in_memory_is_renewed",
        edits: &[Rust {
            file: "backend/stores/memory/queue.rs",
            from: "                if holder.revoked {",
            to: "                if holder.revoked && !mutant!() {",
        }],
        caught_by: &["memory::revoke::a_live_holder_is_told_soon_and_the_lock_is_granted_when_it_has_left"],
    },
    Mutant {
        name: "a_revocation_in_memory_compares_no_token",
        edits: &[Rust {
            file: "backend/stores/memory/queue.rs",
            from: "        (holder.fence == fence && holder.expires > now.at).then_some(holder.owner)",
            to: "        ((mutant!() || holder.fence == fence) && holder.expires > now.at).then_some(holder.owner)",
        }],
        caught_by: &[
            "memory::revoke::a_wrong_token_revokes_nothing",
            "memory::revoke::a_wrong_token_frees_nothing_by_force",
        ],
    },
    // Redis.
    Mutant {
        name: "a_revoked_lease_on_redis_is_renewed",
        edits: &[Script {
            from: "if value and string.sub(value, -#ours) == ours then",
            to: "if value and string.find(value, ours, 1, true) then",
        }],
        caught_by: &["redis::revoke::a_live_holder_is_told_soon_and_the_lock_is_granted_when_it_has_left"],
    },
    Mutant {
        name: "a_revoked_lease_on_redis_is_renewed_by_a_poll",
        edits: &[Script {
            from: "if string.sub(holder, -1) == '!' then return 'revoked ' .. now_text end",
            to: "holder = string.gsub(holder, '!', '')",
        }],
        caught_by: &[
            "servers redis::operators::a_grant_that_was_revoked_before_its_waiter_knew_of_it_is_not_revived",
        ],
    },
    Mutant {
        name: "a_revocation_on_redis_compares_no_token",
        edits: &[Script { from: "  is_meant = fence == which", to: "  is_meant = fence" }],
        caught_by: &[
            "redis::revoke::a_wrong_token_revokes_nothing",
            "redis::revoke::a_wrong_token_frees_nothing_by_force",
            "servers redis::operators::a_revocation_that_is_executed_late_spares_the_next_holder",
        ],
    },
    Mutant {
        name: "a_revocation_on_redis_frees_at_once",
        edits: &[Script { from: "if how ~= 'mark' then", to: "if true then" }],
        caught_by: &[
            "redis::revoke::a_live_holder_is_told_soon_and_the_lock_is_granted_when_it_has_left",
            "redis::revoke::a_paused_holder_keeps_its_lock_until_its_deadline_and_knows_of_nothing_later",
        ],
    },
    Mutant {
        name: "a_revoked_lease_on_redis_never_ends",
        edits: &[Script {
            from: "redis.call('SET', key, holder .. '!', 'KEEPTTL')",
            to: "redis.call('SET', key, holder .. '!')",
        }],
        caught_by: &[
            "redis::revoke::a_dead_holder_keeps_its_lock_until_its_deadline",
            "redis::revoke::a_revocation_beside_renewals_is_not_undone_by_them",
        ],
    },
    Mutant {
        name: "a_revocation_on_redis_is_refused_when_memory_is_short",
        edits: &[Script { from: "  redis.pcall('HDEL', key, '!')", to: "" }],
        caught_by: &["servers redis::operators::a_lock_can_be_revoked_while_the_server_is_out_of_memory"],
    },
    Mutant {
        name: "a_holder_on_redis_is_not_notified_of_a_revocation",
        edits: &[Rust {
            file: "backend/stores/redis/queue/inbox.rs",
            from: "Some(Message::Revoked { name }) => self.revocations.notify(name),",
            to: "Some(Message::Revoked { name }) if !mutant!() => self.revocations.notify(name),
            Some(Message::Revoked { .. }) => {}",
        }],
        caught_by: &[
            "redis::revoke::a_live_holder_is_told_soon_and_the_lock_is_granted_when_it_has_left",
            "redis::revoke::a_lock_is_free_at_once_by_force_and_its_holder_learns_of_it",
        ],
    },
    Mutant {
        name: "a_forged_notice_of_a_revocation_keeps_a_name_of_any_length",
        edits: &[Rust {
            file: "backend/stores/redis/queue/inbox.rs",
            from: "(name.len() <= MAX_PREFIX_BYTES + MAX_KEY_BYTES).then_some",
            to: "(mutant!() || name.len() <= MAX_PREFIX_BYTES + MAX_KEY_BYTES).then_some",
        }],
        caught_by: &[
            "unit backend::stores::redis::queue::inbox::tests::messages_are_read_and_others_ignored",
        ],
    },
    Mutant {
        name: "force_on_redis_serves_no_waiter",
        edits: &[Script {
            from: "if not hand_over(0) then redis.call('DEL', key) end",
            to: "redis.call('DEL', key)",
        }],
        caught_by: &["servers redis::operators::force_serves_the_first_waiter_in_the_same_step"],
    },
    Mutant {
        name: "force_on_redis_without_a_token_frees_any_holder",
        edits: &[
            Script {
                from: "return inbox_id and not_held() or redis.sha1hex(holder) .. ' ' .. now_us end",
                to: "return redis.sha1hex(holder) .. ' ' .. now_us end",
            },
            Script {
                from: "is_meant = not inbox_id and redis.sha1hex(holder) == digest",
                to: "is_meant = redis.sha1hex(holder) == digest",
            },
        ],
        caught_by: &["redis::revoke::a_holder_of_ours_is_not_freed_as_one_without_a_token"],
    },
    Mutant {
        name: "force_on_redis_frees_a_foreign_holder_that_was_not_seen",
        edits: &[Script {
            from: "is_meant = not inbox_id and redis.sha1hex(holder) == digest",
            to: "is_meant = not inbox_id",
        }],
        caught_by: &[
            "servers redis::operators::a_foreign_holder_that_came_after_the_one_that_was_seen_is_spared",
        ],
    },
    Mutant {
        name: "a_scan_of_redis_in_one_step",
        edits: &[Rust {
            file: "backend/stores/redis/operate.rs",
            from: "step.arg(\"COUNT\").arg(KEYS_PER_STEP)",
            to: "step.arg(\"COUNT\").arg(if mutant!() { 1_000_000 } else { KEYS_PER_STEP })",
        }],
        caught_by: &[
            "servers redis::operators::no_step_of_a_scan_of_a_hundred_thousand_locks_holds_up_the_server",
        ],
    },
    Mutant {
        name: "a_scan_of_redis_ends_at_a_name_that_may_not_be_read",
        edits: &[Rust {
            file: "backend/stores/redis/operate.rs",
            from: "if keys.len() > 1 && (is_of_a_name",
            to: "if !mutant!() && keys.len() > 1 && (is_of_a_name",
        }],
        caught_by: &["servers redis::operators::a_name_that_may_not_be_read_does_not_end_a_scan"],
    },
    Mutant {
        name: "a_pattern_of_redis_is_made_of_the_name_as_it_is",
        edits: &[Rust {
            file: "backend/stores/redis/operate.rs",
            from: "if r\"\\*?[]\".contains(character) {",
            to: "if r\"\\*?[]\".contains(character) && !mutant!() {",
        }],
        caught_by: &["unit backend::stores::redis::operate::tests::a_pattern_matches_what_it_is_made_of"],
    },
    // Redlock and Redisson.
    Mutant {
        name: "a_revoked_lease_on_a_node_is_renewed",
        edits: &[Script { from: "if ours and is_revoked(rest) then return -1 end", to: "" }],
        caught_by: &[
            "redlock::revoke::a_live_holder_is_told_soon_and_the_lock_is_granted_when_it_has_left",
            "redlock::revoke::a_revocation_beside_renewals_is_not_undone_by_them",
        ],
    },
    Mutant {
        name: "a_node_takes_a_revoked_lease_again",
        edits: &[Script {
            from: "raise(KEYS[2], above(fence, math.max(tonumber(ARGV[3]), last_of(KEYS[2]))))\n",
            to: "\n",
        }],
        caught_by: &["servers redlock::operators::no_node_takes_a_revoked_lease_again"],
    },
    Mutant {
        name: "a_node_that_missed_a_fence_takes_a_revoked_lease_again",
        edits: &[Script { from: "math.max(tonumber(ARGV[3]), last_of(KEYS[2]))", to: "ARGV[3]" }],
        caught_by: &[
            "servers redlock::operators::no_node_takes_a_lease_again_that_was_revoked_by_an_older_fence",
        ],
    },
    Mutant {
        name: "an_acquisition_after_the_lease_that_it_asks_for",
        edits: &[Rust {
            file: "backend/kits/unqueued/attempt.rs",
            from: "let limit = sent + shared.nodes.timeout().min(request.ttl);",
            to: "let limit = sent
            + if mutant!() { shared.nodes.timeout() } else { shared.nodes.timeout().min(request.ttl) };",
        }],
        caught_by: &[
            "servers redlock::operators::no_acquisition_is_executed_after_the_lease_that_it_asks_for",
        ],
    },
    Mutant {
        name: "a_mark_on_a_minority_ends_a_hold",
        edits: &[Rust {
            file: "backend/kits/unqueued/renewal.rs",
            from: "if replies.count.has_majority() == Decision::Yes {
            renewed",
            to: "if mutant!() && replies.revoked_by != 0 {
            Renewal::Revoked
        } else if replies.count.has_majority() == Decision::Yes {
            renewed",
        }],
        caught_by: &["servers redlock::operators::a_mark_on_a_minority_revokes_nothing_and_is_repeated"],
    },
    Mutant {
        name: "a_quorum_s_revocation_compares_no_token",
        edits: &[Rust {
            file: "backend/kits/unqueued/operate.rs",
            from: "find(|holder| holder.has(revoke.token, &**protocol))",
            to: "find(|holder| mutant!() || holder.has(revoke.token, &**protocol))",
        }],
        caught_by: &[
            "redlock::revoke::a_wrong_token_revokes_nothing",
            "redlock::revoke::a_wrong_token_frees_nothing_by_force",
            "redlock::revoke::a_holder_of_ours_is_not_freed_as_one_without_a_token",
        ],
    },
    Mutant {
        name: "a_node_revokes_any_holder",
        edits: &[Script {
            from: "  local fence, rest = held(KEYS[1], ARGV[2])
  if not fence then return 0 end",
            to: "  ARGV[2] = string.match(redis.call('GET', KEYS[1]) or '', '^r1x:%x+') or ''
  local fence, rest = held(KEYS[1], ARGV[2])
  if not fence then return 0 end",
        }],
        caught_by: &["servers redlock::operators::a_revocation_that_is_executed_late_spares_the_next_holder"],
    },
    Mutant {
        name: "the_remains_on_a_minority_are_a_holder",
        edits: &[Rust {
            file: "backend/kits/unqueued/look.rs",
            from: "candidate.seen_on.len() + silent >= majority(self.nodes)",
            to: "mutant!() || candidate.seen_on.len() + silent >= majority(self.nodes)",
        }],
        caught_by: &[
            "unit backend::kits::unqueued::look::tests::the_holder_is_the_one_that_a_majority_shows_or_may_show",
            "servers redlock::operators::what_a_minority_shows_is_no_holder_unless_the_others_are_silent",
        ],
    },
    Mutant {
        name: "a_quorum_s_holder_is_not_notified",
        edits: &[Rust {
            file: "backend/kits/unqueued/node.rs",
            from: "if matches!(kind, Kind::Acquire | Kind::Renew) {",
            to: "if matches!(kind, Kind::Acquire | Kind::Renew) && !mutant!() {",
        }],
        caught_by: &[
            "redlock::revoke::a_live_holder_is_told_soon_and_the_lock_is_granted_when_it_has_left",
            "servers redisson::operators::a_holder_that_was_freed_by_force_learns_of_it_with_the_rights_of_the_page",
        ],
    },
    Mutant {
        name: "a_scan_lists_each_node",
        edits: &[Rust {
            file: "backend/kits/unqueued/scan.rs",
            from: "holder.first().is_doubtful || cursor.done.iter().any(was_on_page)",
            to: "holder.first().is_doubtful || !mutant!() && cursor.done.iter().any(was_on_page)",
        }],
        caught_by: &["servers redlock::operators::a_scan_finds_each_lock_once_while_all_nodes_answer"],
    },
    Mutant {
        name: "a_scan_ends_with_a_minority_of_the_nodes",
        edits: &[Rust {
            file: "backend/kits/unqueued/scan.rs",
            from: "if cursor.done.len() >= nodes.majority() {",
            to: "if cursor.done.len() + usize::from(mutant!()) >= nodes.majority() {",
        }],
        caught_by: &["servers redlock::operators::a_lock_that_the_first_node_lacks_is_found"],
    },
];
