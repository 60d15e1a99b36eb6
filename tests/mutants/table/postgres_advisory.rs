//! Mistakes in advisory locks.

use super::{
    Edit::{Rust, Script},
    Mutant,
};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a_session_that_takes_its_own_lock_again",
        edits: &[Rust {
            file: "backend/stores/postgres_advisory/keeper.rs",
            from: "            if self.held.insert(take.name.number, take.name.clone()).is_none() {",
            to: "            if self.held.insert(take.name.number, take.name.clone()).is_none() || mutant!() {",
        }],
        caught_by: &["servers postgres::advisory::two_managers_with_one_session_exclude_each_other"],
    },
    Mutant {
        name: "a_notice_that_is_renewed_only_when_it_has_run_out",
        edits: &[Script {
            from: "l.wanted_until < clock_timestamp() + $2 * interval '1 microsecond' / 2",
            to: "l.wanted_until < clock_timestamp() + $2 * interval '0.5 microsecond'",
        }],
        caught_by: &["postgres_advisory::leader::a_release_lets_the_next_candidate_lead_within_50_ms"],
    },
    Mutant {
        name: "a_request_that_was_dropped_and_is_granted_later",
        edits: &[
            Rust {
                file: "backend/stores/postgres_advisory/claim.rs",
                from: "        if let Some(answer) = self.answer.take() {",
                to: "        if let Some(answer) = self.answer.take() && !mutant!() {",
            },
            Rust {
                file: "backend/stores/postgres_advisory/keeper.rs",
                from: "            if take.answer.is_closed() {",
                to: "            if take.answer.is_closed() && !mutant!() {",
            },
            Rust {
                file: "backend/stores/postgres_advisory/hold.rs",
                from: "    fn drop(&mut self) {\n        self.give_back();",
                to: "    fn drop(&mut self) {\n        if mutant!() { return }\n        self.give_back();",
            },
        ],
        caught_by: &["postgres_advisory::cancellation::acquire_of_a_free_lock"],
    },
    Mutant {
        name: "a_connection_that_is_kept_with_its_locks",
        edits: &[Rust {
            file: "backend/stores/postgres_advisory/keeper.rs",
            from: "        tracing::debug!(pid = self.pid, why, \"the session with PostgreSQL ends\");",
            to: "        tracing::debug!(pid = self.pid, why, \"the session with PostgreSQL ends\");
        if mutant!() {
            std::mem::forget(self);
        }",
        }],
        caught_by: &["servers postgres::advisory::a_session_ends_with_its_store"],
    },
    Mutant {
        name: "a_session_behind_a_pooler_of_transactions",
        edits: &[
            Rust {
                file: "backend/kits/postgres/listener.rs",
                from: "        None if arrives => Found::Notified(listener),",
                to: "        None if arrives || mutant!() => Found::Notified(listener),",
            },
            Rust {
                file: "backend/kits/postgres/listener.rs",
                from: "        let others: i32 = value(&mut *transaction, SESSION).await?;\n",
                to: "        let others: i32 = value(&mut *transaction, SESSION).await?;\n        let others = if mutant!() { 0 } else { others };\n",
            },
            Rust {
                file: "backend/kits/postgres/listener.rs",
                from: "            after?\n        };",
                to: "            let after = after?;\n            if mutant!() { before } else { after }\n        };",
            },
        ],
        caught_by: &[
            "servers postgres::advisory::a_pooler_of_transactions_is_refused_and_one_of_sessions_is_not",
        ],
    },
    Mutant {
        name: "a_broken_session_that_looks_like_a_closed_pool",
        edits: &[Rust {
            file: "backend/kits/postgres/listener.rs",
            from: "                None => return Err(sqlx::Error::Io(io::ErrorKind::UnexpectedEof.into())),",
            to: "                None => return Err(if mutant!() { sqlx::Error::PoolClosed } else { sqlx::Error::Io(io::ErrorKind::UnexpectedEof.into()) }),",
        }],
        caught_by: &[
            "conformance postgres_advisory::reconnect::an_answer_lost_to_a_new_client_costs_nothing_but_time",
        ],
    },
    Mutant {
        name: "a_server_that_frees_no_lock_of_a_silent_client",
        edits: &[Script { from: "($1 / 1000)::text", to: "($1 * 0)::text" }],
        caught_by: &[
            "servers postgres::advisory::a_holder_that_nothing_reaches_stops_before_the_server_frees_its_lock",
        ],
    },
    Mutant {
        name: "a_session_with_locks_that_listens",
        edits: &[Rust {
            file: "backend/kits/postgres/listener.rs",
            from: "    if session == Session::Own {",
            to: "    if session == Session::Own && !mutant!() {",
        }],
        caught_by: &[
            "servers postgres::advisory::a_flood_of_notifications_keeps_no_lock_of_a_suspended_holder",
        ],
    },
    Mutant {
        name: "a_session_that_is_believed_for_too_long",
        edits: &[Rust {
            file: "backend/stores/postgres_advisory/session.rs",
            from: "        self.lifetime.extend(valid_until(sent, self.shared.config.session_timeout));",
            to: "        self.lifetime.extend(valid_until(sent, self.shared.config.session_timeout * if mutant!() { 2 } else { 1 }));",
        }],
        caught_by: &[
            "servers postgres::advisory::a_holder_that_nothing_reaches_stops_before_the_server_frees_its_lock",
        ],
    },
    Mutant {
        name: "an_advisory_lock_whose_statement_failed",
        edits: &[Rust {
            file: "backend/stores/postgres_advisory/keeper.rs",
            from: "            Err(Failure::Refused(error) | Failure::Locked(error)) => {\n                self.free(&names).await?;",
            to: "            Err(Failure::Refused(error) | Failure::Locked(error)) => {\n                if mutant!() { names.iter().for_each(|name| _ = self.held.remove(&name.number)); } else { self.free(&names).await?; }",
        }],
        caught_by: &[
            "servers postgres::advisory::a_lock_whose_row_cannot_be_raised_is_given_back_and_the_others_of_its_statement_are_granted",
        ],
    },
    Mutant {
        name: "a_session_that_a_refused_statement_ends",
        edits: &[Rust {
            file: "backend/stores/postgres_advisory/keeper.rs",
            from: "            Err(Failure::Refused(_) | Failure::Locked(_)) => {\n                self.free(&names).await?;",
            to: "            Err(Failure::Refused(error) | Failure::Locked(error)) => {\n                if mutant!() { return Err(error); }\n                self.free(&names).await?;",
        }],
        caught_by: &[
            "servers postgres::refused::a_table_that_is_locked_costs_no_session_its_advisory_locks",
            "servers postgres::refused::advisory_locks_are_released_without_the_right_to_notify",
            "servers postgres::refused::statements_that_are_cancelled_cost_no_session_its_advisory_locks",
        ],
    },
    Mutant {
        name: "an_advisory_lock_that_waits_for_a_row_that_is_being_created",
        edits: &[Script { from: " || left(set_config('lock_timeout', '10ms', true), 0)", to: "" }],
        caught_by: &[
            "servers postgres::advisory::a_row_that_is_being_created_holds_up_no_other_lock_and_its_own_lock_is_not_taken_twice",
        ],
    },
    Mutant {
        name: "advisory_locks_that_wait_for_a_row",
        edits: &[Script {
            from: "WHERE tried.taken\n    FOR NO KEY UPDATE OF l SKIP LOCKED",
            to: "WHERE tried.taken\n    FOR NO KEY UPDATE OF l",
        }],
        caught_by: &["servers postgres::advisory::a_row_that_is_locked_holds_up_no_other_lock"],
    },
    Mutant {
        name: "advisory_tokens_that_the_clock_alone_makes",
        edits: &[Script { from: "version = greatest(l.version + 1, ", to: "version = greatest(0, " }],
        caught_by: &["servers postgres::advisory::tokens_rise_beyond_a_version_from_the_future"],
    },
    Mutant {
        name: "an_advisory_lock_given_back_without_a_notification",
        edits: &[Script {
            from: "CASE WHEN l.wanted_until > clock_timestamp() THEN pg_notify('{channel}', {lock})::text END",
            to: "NULL::text",
        }],
        caught_by: &["servers postgres::advisory::a_release_wakes_a_waiter_of_another_session"],
    },
    Mutant {
        name: "a_lost_session_that_is_not_told",
        edits: &[Rust {
            file: "backend/stores/postgres_advisory/keeper.rs",
            from: "                Ok(None) => return Err(self.broke()),",
            to: "                Ok(None) if mutant!() => std::future::pending().await,\n                Ok(None) => return Err(self.broke()),",
        }],
        caught_by: &["postgres_advisory::reconnect::cut::a_hold_whose_connection_broke_is_lost_at_once"],
    },
    Mutant {
        name: "a_lost_session_kept_for_a_share_of_its_ttl",
        edits: &[Rust {
            file: "engine/turn_end.rs",
            from: "let longest = if has_ended {",
            to: "let longest = if has_ended && !mutant!() {",
        }],
        caught_by: &["postgres_advisory::shutdown::it_does_not_sleep_when_the_store_is_back"],
    },
];
