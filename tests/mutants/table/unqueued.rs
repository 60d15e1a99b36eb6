//! Mistakes in the locks without a queue: of a majority of servers, and shared with Redisson.

use super::{
    Edit::{Rust, Script},
    Mutant,
};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "quorum_validity_from_the_answer",
        edits: &[Rust {
            file: "backend/kits/unqueued/attempt.rs",
            from: "let valid_until = valid_until(self.sent, self.request.ttl);",
            to: "let sent = if mutant!() { Instant::now() } else { self.sent };
        let valid_until = valid_until(sent, self.request.ttl);",
        }],
        caught_by: &["redlock::lease::the_lease_counts_from_before_the_request"],
    },
    Mutant {
        name: "quorum_renewal_from_the_answer",
        edits: &[Rust {
            file: "backend/kits/unqueued/renewal.rs",
            from: "Renewal::Renewed(valid_until(sent, id.ttl))",
            to: "Renewal::Renewed(valid_until(if mutant!() { Instant::now() } else { sent }, id.ttl))",
        }],
        caught_by: &["redlock::lease::a_renewal_counts_from_before_its_request"],
    },
    Mutant {
        name: "half_of_the_nodes_is_enough",
        edits: &[Rust {
            file: "backend/kits/unqueued/quorum.rs",
            from: "pub(super) const fn majority(nodes: usize) -> usize {\n    nodes / 2 + 1",
            to: "pub(super) fn majority(nodes: usize) -> usize {\n    nodes / 2 + usize::from(!mutant!())",
        }],
        caught_by: &[
            "unit backend::kits::unqueued::quorum::tests::two_holders_always_share_a_node",
            "servers redlock::minority::what_a_minority_granted_is_free_when_the_attempt_ends",
        ],
    },
    Mutant {
        name: "a_majority_of_the_nodes_that_can_be_reached",
        edits: &[
            Rust {
                file: "backend/kits/unqueued/attempt.rs",
                from: "            Err(failure) if failure.is_definite() => unanswered.ended_at(node),
",
                to: "            Err(_) if mutant!() => self.fences.nodes -= 1,
            Err(failure) if failure.is_definite() => unanswered.ended_at(node),
",
            },
            Rust {
                file: "backend/kits/unqueued/quorum.rs",
                from: "pub(super) struct Fences {\n    nodes: usize,",
                to: "pub(super) struct Fences {\n    pub(super) nodes: usize,",
            },
        ],
        caught_by: &["servers redlock::minority::two_of_five_may_die_and_a_third_is_an_outage_that_heals"],
    },
    Mutant {
        name: "a_round_waits_for_the_last_node",
        edits: &[Rust {
            file: "backend/kits/unqueued/attempt.rs",
            from: "let next = if replies.count.is_divided() {",
            to: "let next = if replies.count.is_divided() && !mutant!() {",
        }],
        caught_by: &[
            "redlock::minority::minority_paused::no_contended_attempt_waits_for_them",
            "redlock::minority::minority_slow::no_contended_attempt_waits_for_them",
        ],
    },
    Mutant {
        name: "rounds_wait_for_no_slow_node_whatever_happens",
        edits: &[Rust {
            file: "backend/kits/unqueued/attempt.rs",
            from: "let patience = if is_patient {",
            to: "let patience = if is_patient && !mutant!() {",
        }],
        caught_by: &["servers redlock::waiting::a_lease_left_on_a_near_node_keeps_no_client_out"],
    },
    Mutant {
        name: "a_client_that_has_released_asks_again_at_once",
        edits: &[Rust {
            file: "backend/kits/unqueued/attempt.rs",
            from: "shared.left_free.take(request.key.stored())",
            to: "shared.left_free.take(request.key.stored()).filter(|_| !mutant!())",
        }],
        caught_by: &[
            "servers redlock::waiting::a_client_that_has_released_leaves_the_lock_to_those_that_wait",
        ],
    },
    Mutant {
        name: "a_divided_majority_is_taken_for_a_holder",
        edits: &[Rust {
            file: "backend/kits/unqueued/attempt.rs",
            from: "(!refusal.is_denied || self.ties < MAX_REPEATS_IF_DENIED);",
            to: "(!refusal.is_denied || (self.ties < MAX_REPEATS_IF_DENIED && !mutant!()));",
        }],
        caught_by: &["servers redlock::waiting::a_lock_that_is_divided_and_then_free_is_not_waited_for"],
    },
    Mutant {
        name: "after_a_tie_all_nodes_are_asked_at_once",
        edits: &[Rust {
            file: "backend/kits/unqueued/attempt.rs",
            from: "let has_leader = self.ties > 0",
            to: "let has_leader = !mutant!() && self.ties > 0",
        }],
        caught_by: &["servers redlock::waiting::a_lease_left_on_a_near_node_keeps_no_client_out"],
    },
    Mutant {
        name: "a_leader_that_refuses_ends_a_division",
        edits: &[Rust {
            file: "backend/kits/unqueued/attempt.rs",
            from: "End::RefusedByLeader => self.divided_since,",
            to: "End::RefusedByLeader => self.divided_since.filter(|_| !mutant!()),",
        }],
        caught_by: &["servers redlock::waiting::a_lease_left_on_a_near_node_keeps_no_client_out"],
    },
    Mutant {
        name: "durability_is_believed",
        edits: &[Rust {
            file: "backend/kits/unqueued/fleet.rs",
            from: "return shown.belies_durable(address);",
            to: "return shown.belies_durable(address).filter(|_| !mutant!());",
        }],
        caught_by: &[
            "unit backend::kits::unqueued::fleet::tests::what_contradicts_durable_is_refused_and_what_cannot_be_seen_is_warned_of",
            "servers redlock::rules::nodes_that_show_that_they_forget_are_not_durable",
        ],
    },
    Mutant {
        name: "a_node_that_hides_its_run_id_votes",
        edits: &[Rust {
            file: "backend/kits/unqueued/fleet.rs",
            from: "if shown.run_id.is_none() {",
            to: "if shown.run_id.is_none() && !mutant!() {",
        }],
        caught_by: &["servers redlock::rules::a_node_without_info_has_no_vote_also_if_it_is_durable"],
    },
    Mutant {
        name: "a_batch_is_failed_by_one_of_its_names",
        edits: &[Rust {
            file: "backend/kits/unqueued/operation.rs",
            from: "if !error.is_retryable() && self.asked.len() > 1 => {",
            to: "if !error.is_retryable() && self.asked.len() > 1 && !mutant!() => {",
        }],
        caught_by: &["servers redlock::rules::a_name_that_is_forbidden_fails_no_other_of_its_round_trip"],
    },
    Mutant {
        name: "a_fence_passes_through_a_float",
        edits: &[Script {
            from: "if type(fence) == 'number' and fence > 0 and fence <= LAST_FENCE then",
            to: "if type(fence) == 'number' then",
        }],
        caught_by: &["servers redisson::a_counter_whose_numbers_are_not_exact_grants_nothing"],
    },
    Mutant {
        name: "a_minority_is_kept",
        edits: &[Rust {
            file: "backend/kits/unqueued/attempt.rs",
            from: "        self.lease(FencingToken::from_micros(0)).withdraw_from(votes.granted).await;
",
            to: "        if !mutant!() {
            self.lease(FencingToken::from_micros(0)).withdraw_from(votes.granted).await;
        }
",
        }],
        caught_by: &["servers redlock::minority::what_a_minority_granted_is_free_when_the_attempt_ends"],
    },
    Mutant {
        name: "other_processes_are_not_known_to_wait",
        edits: &[Rust {
            file: "backend/kits/unqueued/attempt.rs",
            from: "self.others_wait |= answer % 2 == 1;",
            to: "self.others_wait |= answer % 2 == 1 && !mutant!();",
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
        edits: &[Script {
            from: "local ours = with and tonumber(with) <= tonumber(fence)",
            to: "local ours = true",
        }],
        caught_by: &[
            "servers redlock::fences::a_grant_that_nodes_lost_before_its_fence_was_written_back_is_none",
        ],
    },
    Mutant {
        name: "a_renewal_creates_what_was_lost",
        edits: &[Script {
            from: "  if ours and is_revoked(rest) then return -1 end
  if ours then",
            to: "  if ours and is_revoked(rest) then return -1 end
  ours = ours or redis.call('SET', holder, ARGV[4 * i - 2] .. ':' .. ARGV[4 * i] .. ':1:', 'NX')
  if ours then",
        }],
        caught_by: &["servers redlock::renewal::a_hold_that_a_majority_lost_is_lost_and_not_created_again"],
    },
    Mutant {
        name: "a_node_that_forgot_its_locks_votes",
        edits: &[Rust {
            file: "backend/kits/unqueued/fleet.rs",
            from: "        (!left.is_zero()).then(|| {",
            to: "        (!left.is_zero() && !mutant!()).then(|| {",
        }],
        caught_by: &[
            "servers redlock::rules::a_node_that_may_have_forgotten_locks_votes_after_the_longest_lease",
        ],
    },
    Mutant {
        name: "a_node_with_a_newer_grant_is_joined",
        edits: &[Script {
            from: "if not ours and last_of(counter) <= tonumber(fence) and",
            to: "if not ours and",
        }],
        caught_by: &["servers redlock::renewal::a_node_with_a_newer_grant_is_not_joined"],
    },
    Mutant {
        name: "a_node_is_joined_after_the_last_look_at_the_lease",
        edits: &[Rust {
            file: "backend/kits/unqueued/renewal.rs",
            from: "any(|(_, failure)| !failure.is_definite())",
            to: "any(|(_, failure)| !failure.is_definite() && !mutant!())",
        }],
        caught_by: &["servers redlock::renewal::a_node_that_was_joined_after_the_release_is_freed_again"],
    },
    Mutant {
        name: "a_release_is_left_to_the_nodes_that_answer",
        edits: &[Rust {
            file: "backend/kits/unqueued/pending_releases.rs",
            from: "        if let Some(release) = self.release.take() {",
            to: "        if let Some(release) = self.release.take().filter(|_| !mutant!()) {",
        }],
        caught_by: &["servers redlock::minority::a_release_reaches_a_node_that_was_away"],
    },
    Mutant {
        name: "a_release_is_repeated_for_ever",
        edits: &[Rust {
            file: "backend/kits/unqueued/pending_releases.rs",
            from: "!release.ends.has_passed()",
            to: "mutant!() || !release.ends.has_passed()",
        }],
        caught_by: &["servers redlock::minority::a_release_is_not_repeated_for_longer_than_its_lease"],
    },
    Mutant {
        name: "servers_that_swapped_their_addresses_are_kept_out",
        edits: &[Rust {
            file: "backend/kits/unqueued/node.rs",
            from: "servers.retain(|(_, open, _)| open.upgrade()",
            to: "servers.retain(|(_, open, _)| mutant!() || open.upgrade()",
        }],
        caught_by: &["servers redlock::minority::servers_that_swap_their_addresses_are_nodes_again"],
    },
    Mutant {
        name: "a_new_connection_of_a_node_stands_for_the_others",
        edits: &[Rust {
            file: "backend/kits/unqueued/node.rs",
            from: "let Some(run_id) = fitness::run_id(info) else { return Ok(()) };",
            to: "if mutant!() {
            servers.retain(|(number, ..)| *number != self.number);
        }
        let Some(run_id) = fitness::run_id(info) else { return Ok(()) };",
        }],
        caught_by: &["servers redlock::minority::a_server_that_one_node_still_uses_is_no_other_node"],
    },
    Mutant {
        name: "acquisitions_overtake_the_release_before_them",
        edits: &[Rust {
            file: "backend/kits/unqueued/operation.rs",
            from: "    for part in parts {\n",
            to: "    parts.sort_by_key(|part| mutant!() && part.kind == Kind::Release);\n    for part in parts {\n",
        }],
        caught_by: &["servers redlock::minority::a_lock_that_is_taken_again_at_once_is_on_all_nodes"],
    },
    Mutant {
        name: "a_release_waits_for_all_nodes",
        edits: &[Rust {
            file: "backend/kits/unqueued/hold.rs",
            from: "            if (is_known && !is_patient) || count.is_out_of_reach() {",
            to: "            if (is_known && !is_patient && !mutant!()) || count.is_out_of_reach() {",
        }],
        caught_by: &["servers redlock::minority::one_hung_node_costs_nothing"],
    },
    Mutant {
        name: "holds_are_added_up_on_the_server",
        edits: &[Script {
            from: "redis.call('HSET', name, owner, ARGV[4 * i])",
            to: "redis.call('HINCRBY', name, owner, 1)",
        }],
        caught_by: &["servers redisson::the_hold_count_is_the_depth_of_the_scope"],
    },
    Mutant {
        name: "a_release_without_its_message",
        edits: &[Script {
            from: "if redis.call('EXISTS', name) == 0 then redis.call('PUBLISH', channel(name), '0') end",
            to: "",
        }],
        caught_by: &["servers redisson::java_and_ours_exclude_and_wake_each_other"],
    },
    Mutant {
        name: "an_unlock_by_another_field",
        edits: &[Script {
            from: "local ours = held(name, ARGV[4 * i - 2])\n  if ours then redis.call('DEL', name) end",
            to: "local ours = redis.call('EXISTS', name) == 1\n  if ours then redis.call('DEL', name) end",
        }],
        caught_by: &[
            "redisson::ownership::a_release_after_the_end_of_the_lease_says_lost_and_spares_the_successor",
        ],
    },
    Mutant {
        name: "a_replica_decides_that_a_lease_is_over",
        edits: &[Script {
            from: "if type(answer) == 'table' and string.find(answer.err, 'READONLY', 1, true) then return answer end",
            to: "",
        }],
        caught_by: &["servers redis::failover::what_a_demoted_primary_has_not_heard_of_is_not_over"],
    },
    Mutant {
        name: "the_lasting_error_of_one_node_ends_every_wait",
        edits: &[Rust {
            file: "backend/kits/unqueued/error.rs",
            from: "is_meant(error)).count() > all - needed",
            to: "is_meant(error)).count() > if mutant!() { 0 } else { all - needed }",
        }],
        caught_by: &[
            "unit backend::kits::unqueued::error::tests::an_error_that_lasts_ends_a_wait_only_if_the_other_nodes_are_no_majority",
        ],
    },
    Mutant {
        name: "a_hanging_renewal_goes_on_without_its_callers",
        edits: &[Rust {
            file: "backend/kits/unqueued/operation.rs",
            from: "if self.kind != Kind::Renew {",
            to: "if self.kind != Kind::Renew || mutant!() {",
        }],
        caught_by: &["servers redis::renewal::a_connection_that_went_silent_costs_no_short_lease"],
    },
    Mutant {
        name: "the_answer_of_a_release_counts_as_its_sending",
        edits: &[Rust {
            file: "backend/kits/unqueued/claim.rs",
            from: "over != connection + 1 && sent < self.limit",
            to: "over != connection + 1 && if mutant!() { Instant::now() } else { sent } < self.limit",
        }],
        caught_by: &[
            "unit backend::kits::unqueued::claim::tests::an_acquisition_may_follow_a_release_that_was_sent_before_its_limit_however_late_the_answer_is",
        ],
    },
];
