//! Mistakes about where a Redis server is.

use super::{Edit::Rust, Mutant};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "the_answer_of_most_sentinels_counts_rather_than_the_latest",
        edits: &[Rust {
            file: "backend/kits/redis/net/verdict.rs",
            from: "max_by_key(|named| (named.epoch, votes(named)))",
            to: "max_by_key(|named| (if mutant!() { 0 } else { named.epoch }, votes(named)))",
        }],
        caught_by: &[
            "unit backend::kits::redis::net::verdict::tests::the_latest_of_a_majority_of_answers_counts",
        ],
    },
    Mutant {
        name: "a_minority_of_the_sentinels_names_the_primary",
        edits: &[Rust {
            file: "backend/kits/redis/net/verdict.rs",
            from: "    count / 2 + 1",
            to: "    if mutant!() { 1 } else { count / 2 + 1 }",
        }],
        caught_by: &[
            "unit backend::kits::redis::net::verdict::tests::a_minority_names_no_primary",
            "servers redis_sentinel::finding::a_minority_names_no_primary_and_a_majority_does",
        ],
    },
    Mutant {
        name: "a_failover_that_was_seen_is_forgotten",
        edits: &[Rust {
            file: "backend/kits/redis/net/verdict.rs",
            from: "Some(latest) if latest.epoch < known_epoch && named",
            to: "Some(latest) if !mutant!() && latest.epoch < known_epoch && named",
        }],
        caught_by: &[
            "unit backend::kits::redis::net::verdict::tests::an_answer_from_before_a_known_failover_counts_only_if_all_give_it",
        ],
    },
    Mutant {
        name: "connections_to_a_replaced_primary_are_kept",
        edits: &[Rust {
            file: "backend/kits/redis/net/sentinels.rs",
            from: "        if let Some(left) = left {
            left.leave();",
            to: "        if let Some(left) = left.filter(|_| !mutant!()) {
            left.leave();",
        }],
        caught_by: &[
            "servers redis_sentinel::failover::a_replaced_primary_that_goes_on_answering_gets_no_further_call",
        ],
    },
    Mutant {
        name: "announcements_of_the_sentinels_are_ignored",
        edits: &[Rust {
            file: "backend/kits/redis/net/sentinel.rs",
            from: "if is_about(&push, name) {",
            to: "if !mutant!() && is_about(&push, name) {",
        }],
        caught_by: &[
            "servers redis_sentinel::failover::a_replaced_primary_that_goes_on_answering_gets_no_further_call",
        ],
    },
    Mutant {
        name: "each_connection_asks_the_sentinels",
        edits: &[Rust {
            file: "backend/kits/redis/net/sentinels.rs",
            from: "self.current.get(|place| !place.is_doubted(),",
            to: "self.current.get(|place| !mutant!() && !place.is_doubted(),",
        }],
        caught_by: &["servers redis_sentinel::finding::all_runtimes_and_callers_share_one_question"],
    },
    Mutant {
        name: "the_primary_that_died_is_believed_in",
        edits: &[Rust {
            file: "backend/kits/redis/net/place.rs",
            from: "        self.doubted.fetch_max(when.as_nanos(), Ordering::AcqRel);",
            to: "        self.doubted.fetch_max(if mutant!() { 0 } else { when.as_nanos() }, Ordering::AcqRel);",
        }],
        caught_by: &[
            "unit backend::kits::redis::net::place::tests::a_sign_counts_until_a_later_question_confirms_the_place",
            "servers redis_sentinel::failover::a_primary_that_dies_is_replaced_and_who_waits_enters",
            "servers redis_cluster::failover::the_death_of_a_primary_touches_no_lock_of_another_and_who_waits_enters",
        ],
    },
    Mutant {
        name: "too_few_replicas_are_enough",
        edits: &[Rust {
            file: "backend/stores/redis/replicas.rs",
            from: "Ok(count) if *count >= needed => Ok(renewed),",
            to: "Ok(count) if *count >= needed || mutant!() => Ok(renewed),",
        }],
        caught_by: &[
            "servers redis_sentinel::replicas::no_lock_is_granted_before_the_replicas_have_it",
            "servers redis_sentinel::replicas::a_lock_that_is_handed_over_is_not_entered_before_the_replicas_have_it",
            "servers redis_sentinel::replicas::no_renewal_counts_before_the_replicas_have_it",
        ],
    },
    Mutant {
        name: "grants_are_not_confirmed",
        edits: &[Rust {
            file: "backend/stores/redis/attempt.rs",
            from: "if let Some(replicas) = self.replicas.clone() {",
            to: "if let Some(replicas) = self.replicas.clone().filter(|_| !mutant!()) {",
        }],
        caught_by: &[
            "servers redis_sentinel::replicas::no_lock_is_granted_before_the_replicas_have_it",
            "servers redis_sentinel::replicas::a_lock_that_is_handed_over_is_not_entered_before_the_replicas_have_it",
        ],
    },
    Mutant {
        name: "renewals_are_not_confirmed",
        edits: &[Rust {
            file: "backend/stores/redis/mod.rs",
            from: "        Some(replicas) => replicas.renew(call).await,
        None =>",
            to: "        Some(replicas) if !mutant!() => replicas.renew(call).await,
        _ =>",
        }],
        caught_by: &["servers redis_sentinel::replicas::no_renewal_counts_before_the_replicas_have_it"],
    },
    Mutant {
        name: "calls_for_a_slot_in_transit_are_made_without_asking",
        edits: &[Rust {
            file: "backend/kits/redis/net/connection.rs",
            from: "            if self.is_asking {",
            to: "            if self.is_asking && !mutant!() {",
        }],
        caught_by: &[
            "servers redis_cluster::migration::a_lock_is_renewed_and_released_while_its_slot_is_half_moved",
        ],
    },
    Mutant {
        name: "what_a_server_says_about_a_moved_slot_is_not_recorded",
        edits: &[Rust {
            file: "backend/kits/redis/net/cluster.rs",
            from: "            write(&self.slots)[slot.number()].replace(member)",
            to: "            if mutant!() { Some(member) } else { write(&self.slots)[slot.number()].replace(member) }",
        }],
        caught_by: &[
            "servers redis_cluster::migration::a_call_goes_at_once_where_a_server_has_said_that_the_slot_is_and_so_do_all_later_ones",
        ],
    },
    Mutant {
        name: "renewals_of_all_servers_wait_for_one_another",
        edits: &[Rust {
            file: "backend/stores/redis/servers.rs",
            from: "            All::Cluster(cluster) => cluster.lane(Slot::of(key.stored())),",
            to: "            All::Cluster(cluster) => {
                if mutant!() { 0 } else { cluster.lane(Slot::of(key.stored())) }
            }",
        }],
        caught_by: &[
            "servers redis_cluster::failover::a_primary_that_hangs_delays_no_call_to_another",
        ],
    },
    Mutant {
        name: "renewals_of_a_slot_in_transit_delay_others",
        edits: &[Rust {
            file: "backend/kits/redis/net/cluster.rs",
            from: "        if said.is_some_and(|said| !(said + IN_TRANSIT).has_passed()) {",
            to: "        if !mutant!() && said.is_some_and(|said| !(said + IN_TRANSIT).has_passed()) {",
        }],
        caught_by: &[
            "servers redis_cluster::migration::a_slot_that_is_moved_to_a_server_that_hangs_delays_no_renewal_of_other_slots",
        ],
    },
    Mutant {
        name: "tokens_are_counted_per_prefix_in_a_cluster",
        edits: &[Rust {
            file: "backend/stores/redis/names.rs",
            from: "            Layout::BySlot => Some(Slot::of(key.stored())),",
            to: "            Layout::BySlot => (!mutant!()).then(|| Slot::of(key.stored())),",
        }],
        caught_by: &[
            "unit backend::stores::redis::names::tests::all_keys_of_a_lock_are_in_its_slot",
            "servers redis_cluster::migration::tokens_rise_when_a_slot_is_moved_there_and_back",
        ],
    },
    Mutant {
        name: "a_release_waits_for_the_end_of_a_move",
        edits: &[Rust {
            file: "backend/stores/redis/hold.rs",
            from: "                let over_one_key = is_moving && ",
            to: "                let over_one_key = !mutant!() && is_moving && ",
        }],
        caught_by: &[
            "servers redis_cluster::migration::a_lock_is_renewed_and_released_while_its_slot_is_half_moved",
        ],
    },
    Mutant {
        name: "a_revoked_lock_counts_as_released_in_a_move",
        edits: &[Rust {
            file: "backend/stores/redis/hold.rs",
            from: "            Some(Renewed::Revoked) => Err(",
            to: "            Some(Renewed::Revoked) if !mutant!() => Err(",
        }],
        caught_by: &[
            "servers redis_cluster::migration::a_lock_that_was_revoked_is_free_at_the_end_of_the_move_during_which_it_was_released",
        ],
    },
    Mutant {
        name: "who_waits_is_asked_only_where_the_lock_was",
        edits: &[Rust {
            file: "backend/stores/redis/hold.rs",
            from: "                    let pause = route.again_with_one_key_after(&failure)?;
                    clock",
            to: "                    let pause = route.again_with_one_key_after(&failure).filter(|_| !mutant!())?;
                    clock",
        }],
        caught_by: &[
            "servers redis_cluster::waiting::a_holder_is_told_of_waiters_after_its_slot_was_moved",
        ],
    },
    Mutant {
        name: "leases_of_a_slot_in_transit_are_not_renewed_one_by_one",
        edits: &[Rust {
            file: "backend/stores/redis/mod.rs",
            from: "Failure::Redirected(redirection, _) => *redirection != Redirection::Down,",
            to: "Failure::Redirected(redirection, _) => {
                        *redirection != Redirection::Down && !mutant!()
                    }",
        }],
        caught_by: &[
            "servers redis_cluster::migration::all_leases_of_a_hash_tag_are_renewed_while_their_slot_is_half_moved",
        ],
    },
    Mutant {
        name: "a_waiter_asks_on_where_its_lock_was",
        edits: &[Rust {
            file: "backend/stores/redis/attempt.rs",
            from: "self.has_moved = matches!(failure, ",
            to: "self.has_moved = !mutant!() && matches!(failure, ",
        }],
        caught_by: &[
            "servers redis_cluster::waiting::a_waiter_follows_its_lock_however_often_the_slot_is_moved",
        ],
    },
    Mutant {
        name: "a_lease_is_confirmed_where_the_lock_was",
        edits: &[Rust {
            file: "backend/stores/redis/attempt.rs",
            from: "Err(failure) if self.route.is_for_another_server(&failure) => failure,",
            to: "Err(failure) if !mutant!() && self.route.is_for_another_server(&failure) => failure,",
        }],
        caught_by: &[
            "servers redis_cluster::waiting::a_lease_that_is_handed_over_after_a_move_is_confirmed_at_the_new_server",
        ],
    },
    Mutant {
        name: "a_call_fails_that_was_sent_on_too_often",
        edits: &[Rust {
            file: "backend/stores/redis/servers.rs",
            from: "            return self.later(PAUSE);
        }
        self.moves += 1;",
            to: "            return if mutant!() { None } else { self.later(PAUSE) };
        }
        self.moves += 1;",
        }],
        caught_by: &[
            "unit backend::stores::redis::servers::tests::a_call_that_is_sent_on_again_and_again_is_made_with_pauses_until_its_limit",
        ],
    },
    Mutant {
        name: "servers_without_slots_are_kept",
        edits: &[Rust {
            file: "backend/kits/redis/net/cluster.rs",
            from: "            !named.contains(address) && !in_use",
            to: "            !mutant!() && !named.contains(address) && !in_use",
        }],
        caught_by: &[
            "servers redis_cluster::failover::a_replaced_primary_that_comes_back_gets_no_further_call",
            "servers redis_cluster::failover::no_two_hold_a_lock_while_primaries_are_replaced_by_command",
        ],
    },
    Mutant {
        name: "an_older_table_of_slots_counts",
        edits: &[Rust {
            file: "backend/kits/redis/net/slot_table.rs",
            from: "        rank(self) > rank(other)",
            to: "        (rank(self) > rank(other)) != mutant!()",
        }],
        caught_by: &[
            "unit backend::kits::redis::net::slot_table::tests::a_server_that_takes_calls_knows_more_than_one_that_was_cut_off_and_a_later_epoch_more_than_an_earlier",
        ],
    },
    Mutant {
        name: "servers_behind_silent_ones_are_not_asked",
        edits: &[Rust {
            file: "backend/kits/redis/net/slot_table.rs",
            from: "                Err(_) if has_more && one_more < end => at_once += 1,",
            to: "                Err(_) if has_more && one_more < end => at_once += usize::from(!mutant!()),",
        }],
        caught_by: &[
            "servers redis_cluster::finding::one_server_is_enough_also_if_it_is_a_replica_or_others_in_the_url_are_dead_or_silent",
        ],
    },
    Mutant {
        name: "a_call_that_a_replica_refuses_is_not_made_again",
        edits: &[Rust {
            file: "backend/stores/redis/servers.rs",
            from: "failure if self.is_for_another_server(failure) =>",
            to: "failure if !mutant!() && self.is_for_another_server(failure) =>",
        }],
        caught_by: &[
            "servers redis_sentinel::failover::a_planned_failover_loses_no_lock_and_fails_no_single_attempt",
        ],
    },
    Mutant {
        name: "a_set_without_a_primary_is_taken_for_contention",
        edits: &[Rust {
            file: "backend/stores/redis/servers.rs",
            from: "        !self.is_failing()",
            to: "        mutant!() || !self.is_failing()",
        }],
        caught_by: &[
            "servers redis_sentinel::failover::a_set_without_a_primary_for_long_is_an_outage_and_no_contention",
        ],
    },
    Mutant {
        name: "a_cluster_whose_primaries_were_all_replaced_is_not_found",
        edits: &[Rust {
            file: "backend/kits/redis/net/slot_table.rs",
            from: "others.iter().filter_map(",
            to: "others.iter().filter(|_| !mutant!()).filter_map(",
        }],
        caught_by: &[
            "servers redis_cluster::failover::an_idle_client_finds_a_cluster_whose_primaries_were_all_replaced",
            "servers redis_cluster::failover::a_client_finds_the_replica_of_the_only_primary",
        ],
    },
    Mutant {
        name: "a_cluster_whose_primaries_were_all_replaced_by_newcomers_is_taken_for_another",
        edits: &[Rust {
            file: "backend/kits/redis/net/slot_table.rs",
            from: "|| has_half_of(&self.replicas, &known.primaries)",
            to: "|| has_half_of(&self.replicas, &known.primaries) && !mutant!()",
        }],
        caught_by: &[
            "servers redis_cluster::failover::an_idle_client_finds_a_cluster_whose_primaries_were_all_replaced",
        ],
    },
    Mutant {
        name: "an_idle_client_of_a_cluster_does_not_hear_of_servers_that_join",
        edits: &[Rust {
            file: "backend/kits/redis/net/cluster.rs",
            from: "if is_one_away { AGAIN } else { REFRESH }",
            to: "if is_one_away { AGAIN } else if mutant!() { Duration::from_hours(1) } else { REFRESH }",
        }],
        caught_by: &[
            "servers redis_cluster::failover::an_idle_client_hears_of_a_replica_before_the_only_primary_dies",
        ],
    },
    Mutant {
        name: "one_dead_server_of_a_cluster_stops_every_client_from_connecting",
        edits: &[Rust {
            file: "backend/stores/redis/servers.rs",
            from: "!is_served || !failure.is_retryable()",
            to: "mutant!() || !is_served || !failure.is_retryable()",
        }],
        caught_by: &[
            "servers redis_cluster::finding::a_client_connects_while_one_of_several_primaries_is_dead_or_hangs",
        ],
    },
    Mutant {
        name: "a_client_connects_to_a_cluster_of_which_one_server_refuses_it",
        edits: &[Rust {
            file: "backend/stores/redis/servers.rs",
            from: "!is_served || !failure.is_retryable()",
            to: "!is_served || !mutant!() && !failure.is_retryable()",
        }],
        caught_by: &[
            "servers redis_cluster::finding::a_client_connects_while_one_of_several_primaries_is_dead_or_hangs",
        ],
    },
    Mutant {
        name: "questions_for_the_table_follow_at_once",
        edits: &[Rust {
            file: "backend/kits/redis/net/cluster.rs",
            from: "        sleep((last + PAUSE).saturating",
            to: "        sleep((last + if mutant!() { Duration::ZERO } else { PAUSE }).saturating",
        }],
        caught_by: &[
            "servers redis_cluster::finding::an_outage_costs_the_other_servers_a_bounded_number_of_questions",
        ],
    },
    Mutant {
        name: "a_page_of_a_scan_names_a_server_by_its_rank",
        edits: &[Rust {
            file: "backend/stores/redis/operate.rs",
            from: "nodes.iter().find(|(at, _)| *at >= number) else",
            to: "(if mutant!() {
                nodes.get(number as usize)
            } else {
                nodes.iter().find(|(at, _)| *at >= number)
            }) else",
        }],
        caught_by: &[
            "servers redis_cluster::failover::a_scan_misses_no_lock_of_a_server_that_stays_while_another_is_replaced",
        ],
    },
    Mutant {
        name: "a_cluster_is_known_by_its_url_only",
        edits: &[Rust {
            file: "backend/stores/redis/cluster/mod.rs",
            from: "        let known = self.servers.servers.addresses();",
            to: "        let known = if mutant!() { Vec::new() } else { self.servers.servers.addresses() };",
        }],
        caught_by: &[
            "servers redis_cluster::finding::a_cluster_is_one_store_by_whatever_seed",
        ],
    },
    Mutant {
        name: "the_last_poll_of_a_wait_is_made_where_the_lock_was",
        edits: &[Rust {
            file: "backend/stores/redis/attempt.rs",
            from: "Failure::Redirected(Redirection::Moved { .. }, _) if again_after.is_some() => {}",
            to: "Failure::Redirected(Redirection::Moved { .. }, _) if again_after.is_some() && !mutant!() => {}",
        }],
        caught_by: &["servers redis_cluster::waiting::a_wait_that_ends_during_a_move_or_after_it_has_timed_out"],
    },
];
