//! Mistakes in the locks in PostgreSQL.

use super::{
    Edit::{Rust, Script},
    Mutant,
};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "rows_that_the_client_s_clock_ends",
        edits: &[
            Rust {
                file: "backend/stores/postgres/attempt.rs",
                from: "        limit = connections.clock.at(sent + connections.config.response_timeout);",
                to: "        limit = connections.clock.at(sent + connections.config.response_timeout);
        if mutant!() {
            let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            limit = u64::try_from(now.as_micros()).unwrap_or_default();
        }",
            },
            Script {
                from: "SELECT now, (extract(epoch FROM now) * 1000000)::bigint AS us FROM moment",
                to: "SELECT to_timestamp($4 / 1000000.0) AS now, $4 AS us FROM moment",
            },
        ],
        caught_by: &[
            "postgres::clocks::a_jump_forward_lets_the_next_one_in_with_a_larger_token_and_its_holder_learns_it",
        ],
    },
    Mutant {
        name: "a_row_released_without_a_look_at_its_owner",
        edits: &[
            Script {
                from: "WHERE o.name = $1 AND o.owner = $2::uuid FOR UPDATE SKIP LOCKED",
                to: "WHERE o.name = $1 AND $2::uuid IS NOT NULL FOR UPDATE SKIP LOCKED",
            },
            Script {
                from: "AND l.owner = due.owner\n    FOR UPDATE OF l SKIP LOCKED",
                to: "AND due.owner IS NOT NULL\n    FOR UPDATE OF l SKIP LOCKED",
            },
        ],
        caught_by: &["postgres::ownership::a_lost_guard_does_not_release_a_later_hold_of_the_same_client"],
    },
    Mutant {
        name: "a_row_renewed_without_a_look_at_its_owner",
        edits: &[Script {
            from: "JOIN {table} l ON l.name = due.name AND l.owner = due.owner, clock\n    WHERE",
            to: "JOIN {table} l ON l.name = due.name, clock\n    WHERE",
        }],
        caught_by: &["postgres::loss::a_body_ends_at_the_next_renewal_when_the_store_gave_its_lock_away"],
    },
    Mutant {
        name: "a_grant_that_a_check_in_does_not_stop",
        edits: &[
            Script {
                from: "l.owner = $2::uuid)\n    FOR UPDATE OF l SKIP LOCKED",
                to: "l.owner = $2::uuid)\n    FOR NO KEY UPDATE OF l SKIP LOCKED",
            },
            Script {
                from: "* 1000000 <= $4\n    FOR UPDATE SKIP LOCKED",
                to: "* 1000000 <= $4\n    FOR NO KEY UPDATE SKIP LOCKED",
            },
        ],
        caught_by: &[
            "servers postgres::check_in::no_other_is_granted_the_lock_while_the_transaction_is_open",
            "servers postgres::check_in::a_transaction_with_an_old_snapshot_is_refused_unless_the_lock_was_only_renewed",
        ],
    },
    Mutant {
        name: "a_release_that_a_check_in_does_not_stop",
        edits: &[Script {
            from: "WHERE o.name = $1 AND o.owner = $2::uuid FOR UPDATE SKIP LOCKED",
            to: "WHERE o.name = $1 AND o.owner = $2::uuid FOR NO KEY UPDATE SKIP LOCKED",
        }],
        caught_by: &[
            "servers postgres::check_in::no_other_is_granted_the_lock_while_the_transaction_is_open",
        ],
    },
    Mutant {
        name: "a_check_in_that_keeps_no_other_out",
        edits: &[Script { from: " AND l.version = $3 FOR KEY SHARE", to: " AND l.version = $3" }],
        caught_by: &[
            "servers postgres::check_in::no_other_is_granted_the_lock_while_the_transaction_is_open",
        ],
    },
    Mutant {
        name: "a_grant_that_waits_for_a_row",
        edits: &[
            Script {
                from: "l.owner = $2::uuid)\n    FOR UPDATE OF l SKIP LOCKED",
                to: "l.owner = $2::uuid)\n    FOR UPDATE OF l",
            },
            Script {
                from: "* 1000000 <= $4\n    FOR UPDATE SKIP LOCKED",
                to: "* 1000000 <= $4\n    FOR UPDATE",
            },
        ],
        caught_by: &["servers postgres::check_in::an_attempt_at_a_row_that_is_locked_ends_at_once"],
    },
    Mutant {
        name: "renewals_that_wait_for_a_row",
        edits: &[Script {
            from: "    FOR NO KEY UPDATE OF l SKIP LOCKED\n), renewed AS",
            to: "    FOR NO KEY UPDATE OF l\n), renewed AS",
        }],
        caught_by: &["servers postgres::check_in::a_row_that_is_locked_delays_no_other_renewal"],
    },
    Mutant {
        name: "renewals_that_a_check_in_stops",
        edits: &[Script {
            from: "    FOR NO KEY UPDATE OF l SKIP LOCKED\n), renewed AS",
            to: "    FOR UPDATE OF l SKIP LOCKED\n), renewed AS",
        }],
        caught_by: &["servers postgres::check_in::a_transaction_of_twice_the_ttl_holds_up_no_renewal"],
    },
    Mutant {
        name: "renewals_over_the_connections_of_callers",
        edits: &[
            Rust {
                file: "backend/stores/postgres/renewal.rs",
                from: "shared.connections.run(Lane::Renewals,",
                to: "shared.connections.run(if mutant!() { Lane::Here } else { Lane::Renewals },",
            },
            Rust {
                file: "backend/kits/postgres/connections.rs",
                from: "            && !background::handle().is_here()\n",
                to: "            && (mutant!() || !background::handle().is_here())\n",
            },
        ],
        caught_by: &["servers postgres::check_in::renewals_do_not_wait_for_the_user_s_pool"],
    },
    Mutant {
        name: "versions_that_the_clock_alone_makes",
        edits: &[
            Script { from: "ELSE greatest(l.version + 1, clock.us)", to: "ELSE clock.us" },
            Script { from: "ELSE greatest(l.version + 1, (date_part(", to: "ELSE greatest(0, (date_part(" },
        ],
        caught_by: &["servers postgres::table::tokens_rise_beyond_a_version_from_the_future"],
    },
    Mutant {
        name: "statements_that_are_executed_however_late",
        edits: &[
            Script { from: "clock.us <= $4 AND", to: "$4 > 0 AND" },
            Script { from: "date_part('epoch', clock_timestamp()) * 1000000 <= $4", to: "$4 > 0" },
        ],
        caught_by: &["servers postgres::waiting::a_request_that_is_executed_late_grants_nothing"],
    },
    Mutant {
        name: "a_statement_that_was_sent_twice_counts_once",
        edits: &[Rust {
            file: "backend/kits/postgres/connections.rs",
            from: "repeated: may_have_run, unnotified",
            to: "repeated: may_have_run && !mutant!(), unnotified",
        }],
        caught_by: &[
            "servers postgres::waiting::a_grant_that_comes_twice_because_it_was_sent_twice_is_released",
            "servers postgres::waiting::a_grant_that_comes_after_the_same_request_was_refused_is_released",
        ],
    },
    Mutant {
        name: "a_second_copy_is_awaited_only_after_a_release_of_a_held_lock",
        edits: &[Rust {
            file: "backend/stores/postgres/hold.rs",
            from: "lingers.filter(|until| !until.has_passed())",
            to: "lingers.filter(|until| !until.has_passed() && !(mutant!() && released == Released::NotHeld))",
        }],
        caught_by: &[
            "servers postgres::waiting::a_grant_that_comes_twice_because_it_was_sent_twice_is_released",
        ],
    },
    Mutant {
        name: "a_grant_whose_caller_has_gone",
        edits: &[Rust {
            file: "backend/stores/postgres/attempt.rs",
            from: "        if let Some((flight, may_be_next)) = self.open.take() {\n",
            to: "        if let Some((flight, may_be_next)) = self.open.take() && !mutant!() {\n",
        }],
        caught_by: &["postgres::cancellation::acquire_of_a_free_lock"],
    },
    Mutant {
        name: "a_statement_that_counts_as_a_new_one_each_time",
        edits: &[Rust {
            file: "backend/kits/postgres/statement.rs",
            from: "        let is_new = !self.0.iter()",
            to: "        let is_new = mutant!() || !self.0.iter()",
        }],
        caught_by: &[
            "unit backend::kits::postgres::statement::tests::a_statement_is_prepared_once_and_another_time_without_its_notification",
        ],
    },
    Mutant {
        name: "a_batch_that_fails_by_one_row",
        edits: &[Rust {
            file: "backend/kits/postgres/halves.rs",
            from: "            Failure::Refused(_) | Failure::Locked(_) => !accepted",
            to: "            Failure::Refused(_) | Failure::Locked(_) => mutant!() || !accepted",
        }],
        caught_by: &[
            "servers postgres::refused_rows::one_row_that_may_not_be_changed_is_the_only_one_whose_lease_is_lost",
            "servers postgres::refused_rows::one_row_that_may_not_be_changed_is_the_only_one_that_is_not_released",
        ],
    },
    Mutant {
        name: "a_sweep_that_fails_by_one_row",
        edits: &[Rust {
            file: "backend/kits/postgres/sweep.rs",
            from: "    let statements = AtomicU32::new(0);",
            to: "    if mutant!() {
        return Ok(send(names).await?);
    }
    let statements = AtomicU32::new(0);",
        }],
        caught_by: &["servers postgres::table::a_row_that_may_not_be_removed_is_the_only_old_one_that_stays"],
    },
    Mutant {
        name: "a_sweep_that_sends_a_statement_for_each_row",
        edits: &[Rust {
            file: "backend/kits/postgres/sweep.rs",
            from: "< MAX_REMOVALS).then(",
            to: "< MAX_REMOVALS || mutant!()).then(",
        }],
        caught_by: &[
            "unit backend::kits::postgres::sweep::tests::a_row_that_stays_keeps_no_other_and_a_page_has_a_bound",
        ],
    },
    Mutant {
        name: "an_answer_that_is_believed_whatever_its_statement",
        edits: &[Rust {
            file: "backend/kits/postgres/statement.rs",
            from: "if rows.iter().all(repeats) {",
            to: "if mutant!() || rows.iter().all(repeats) {",
        }],
        caught_by: &["servers postgres::pooler::the_answer_to_another_statement_grants_nothing"],
    },
    Mutant {
        name: "listening_behind_a_pooler",
        edits: &[
            Rust {
                file: "backend/kits/postgres/listener.rs",
                from: "        if before != after || before == others {",
                to: "        if !mutant!() && (before != after || before == others) {",
            },
            Rust {
                file: "backend/kits/postgres/listener.rs",
                from: "    if session == Session::New && ",
                to: "    if !mutant!() && session == Session::New && ",
            },
        ],
        caught_by: &["servers postgres::pooler::no_client_listens_in_a_session_of_others"],
    },
    Mutant {
        name: "a_pool_s_hook_that_does_not_run_for_renewals",
        edits: &[Rust {
            file: "backend/kits/postgres/dial.rs",
            from: "        Some(pool) => like_the_pool",
            to: "        Some(_) if mutant!() => options.connect().await,
        Some(pool) => like_the_pool",
        }],
        caught_by: &[
            "servers postgres::own_pool::leases_are_renewed_in_sessions_that_the_pool_s_hook_has_prepared",
        ],
    },
    Mutant {
        name: "options_of_a_pool_read_once",
        edits: &[Rust {
            file: "backend/kits/postgres/config.rs",
            from: "        if let Some(pool) = &self.pool {",
            to: "        if let Some(pool) = self.pool.as_ref().filter(|_| !mutant!()) {",
        }],
        caught_by: &["servers postgres::own_pool::leases_are_renewed_with_the_options_that_the_pool_has_now"],
    },
    Mutant {
        name: "a_row_granted_without_a_way_to_renew_it",
        edits: &[Rust {
            file: "backend/stores/postgres/attempt.rs",
            from: "        if request.auto_renew {
            shared",
            to: "        if request.auto_renew && !mutant!() {
            shared",
        }],
        caught_by: &["postgres::one_connection::a_lock_that_could_not_be_renewed_is_not_granted"],
    },
    Mutant {
        name: "a_place_that_is_free_before_the_server_has_ended_its_statement",
        edits: &[Rust {
            file: "backend/kits/postgres/overdue.rs",
            from: "        let late = Instant::now();\n",
            to: "        let late = Instant::now();\n        if mutant!() { return checkout.give_up(); }\n",
        }],
        caught_by: &["servers postgres::backends::an_absent_replica_costs_no_more_connections"],
    },
    Mutant {
        name: "statements_that_wait_for_the_table",
        edits: &[Rust {
            file: "backend/kits/postgres/statement.rs",
            from: "lock_timeout.as_millis().max(1))",
            to: "if mutant!() { 0 } else { lock_timeout.as_millis().max(1) })",
        }],
        caught_by: &["servers postgres::backends::a_statement_does_not_wait_for_a_locked_table_to_the_end"],
    },
    Mutant {
        name: "an_attempt_that_waits_for_a_row_that_is_being_created",
        edits: &[Script { from: " || left(set_config('lock_timeout', '20ms', true), 0)", to: "" }],
        caught_by: &[
            "servers postgres::backends::a_row_that_is_being_created_delays_no_other_lock_and_costs_no_connection",
        ],
    },
    Mutant {
        name: "a_request_that_may_be_granted_long_after_it_was_sent",
        edits: &[Rust {
            file: "backend/stores/postgres/hold.rs",
            from: "if self.may_be_next { until + CLAIM_WINDOW.max(NOTICE_PERIOD) } else { until }",
            to: "if self.may_be_next || mutant!() { until + NOTICE_PERIOD * 6 } else { until }",
        }],
        caught_by: &[
            "servers postgres::waiting::a_shutdown_without_a_server_takes_as_long_as_a_ttl_and_a_request",
        ],
    },
    Mutant {
        name: "a_second_table_without_a_warning",
        edits: &[Rust {
            file: "backend/kits/postgres/fitness.rs",
            from: "            if let Some(others) = others\n",
            to: "            if let Some(others) = others.filter(|_| !mutant!())\n",
        }],
        caught_by: &[
            "servers postgres::second_table::a_second_table_of_the_same_name_is_not_created_without_a_warning_that_names_both",
        ],
    },
    Mutant {
        name: "tables_of_one_name_are_one_store",
        edits: &[Rust {
            file: "backend/stores/postgres/mod.rs",
            from: "config.table.has_schema().then(",
            to: "(config.table.has_schema() || mutant!()).then(",
        }],
        caught_by: &[
            "servers postgres::own_pool::pools_whose_sessions_find_different_tables_are_different_stores",
        ],
    },
    Mutant {
        name: "a_release_that_does_not_wait_for_a_commit",
        edits: &[Rust {
            file: "backend/stores/postgres/hold.rs",
            from: "!until.has_passed() || shared.connections.has_overdue());",
            to: "!until.has_passed() || shared.connections.has_overdue() && !mutant!());",
        }],
        caught_by: &["servers postgres::backends::an_acquisition_that_is_long_in_its_commit_is_undone"],
    },
    Mutant {
        name: "the_user_s_name_of_a_connection_is_replaced",
        edits: &[Rust {
            file: "backend/kits/postgres/config.rs",
            from: "        Some(_) => options,
        None => options.application_name(",
            to: "        Some(_) if !mutant!() => options,
        _ => options.application_name(",
        }],
        caught_by: &["servers postgres::names::a_name_in_the_url_or_in_the_user_s_pool_is_kept"],
    },
];
