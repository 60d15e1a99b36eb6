//! Mistakes about locks in PostgreSQL and ZooKeeper that operators look at or take from their holders.

use super::{
    Edit::{Rust, Script},
    Mutant,
};

pub const MUTANTS: &[Mutant] = &[
    // PostgreSQL.
    Mutant {
        name: "a_revoked_row_is_renewed",
        edits: &[Script {
            from: "    WHERE l.expires_at > clock.now AND l.revoked IS DISTINCT FROM l.version\n",
            to: "    WHERE l.expires_at > clock.now\n",
        }],
        caught_by: &["postgres::revoke::a_live_holder_is_told_soon_and_the_lock_is_granted_when_it_has_left"],
    },
    Mutant {
        name: "a_revocation_of_a_row_compares_no_version",
        edits: &[Script {
            from: "WHERE l.name = $1 AND l.version = $2 AND l.owner IS NOT NULL",
            to: "WHERE l.name = $1 AND $2::bigint IS NOT NULL AND l.owner IS NOT NULL",
        }],
        caught_by: &[
            "postgres::revoke::a_wrong_token_revokes_nothing",
            "postgres::revoke::a_wrong_token_frees_nothing_by_force",
        ],
    },
    Mutant {
        name: "force_that_a_check_in_does_not_stop",
        edits: &[Script {
            from: "    FOR UPDATE OF l SKIP LOCKED\n), freed AS (\n    UPDATE {table} l SET\n        {grant},",
            to: "    FOR NO KEY UPDATE OF l SKIP LOCKED\n), freed AS (\n    UPDATE {table} l SET\n        {grant},",
        }],
        caught_by: &[
            "servers postgres::operate::a_check_in_is_refused_after_a_revocation_and_keeps_off_force",
        ],
    },
    Mutant {
        name: "a_process_with_leases_that_looks_at_no_revocation",
        edits: &[Rust {
            file: "backend/stores/postgres/revocations.rs",
            from: "        if *lock(&self.last) == last {",
            to: "        if *lock(&self.last) == last || mutant!() {",
        }],
        caught_by: &["postgres::revoke::a_live_holder_is_told_soon_and_the_lock_is_granted_when_it_has_left"],
    },
    Mutant {
        name: "a_look_for_the_last_grants_alone",
        edits: &[Script { from: " OR l.revoked = ANY($2::bigint[])", to: " OR $2::bigint[] IS NULL" }],
        caught_by: &["postgres::revoke::a_lock_is_free_at_once_by_force_and_its_holder_learns_of_it"],
    },
    Mutant {
        name: "notices_of_revocations_that_are_all_heeded",
        edits: &[Rust {
            file: "backend/stores/postgres/revocations.rs",
            from: "clock::sleep_until(looked + PAUSE_IF_NOTIFIED).await,",
            to: "if !mutant!() { clock::sleep_until(looked + PAUSE_IF_NOTIFIED).await },",
        }],
        caught_by: &[
            "servers postgres::operate::forged_notices_of_revocations_make_the_holder_look_now_and_then",
        ],
    },
    // Advisory locks.
    Mutant {
        name: "a_session_that_reads_announced_revocations_only",
        edits: &[Rust {
            file: "backend/stores/postgres_advisory/revocations.rs",
            from: "self.looks_without_reading > MAX_LOOKS_WITHOUT_READING",
            to: "(!mutant!() && self.looks_without_reading > MAX_LOOKS_WITHOUT_READING)",
        }],
        caught_by: &[
            "servers postgres::operate_advisory::a_revocation_that_cannot_be_announced_reaches_its_holder_all_the_same",
        ],
    },
    Mutant {
        name: "the_rows_of_held_advisory_locks_are_removed",
        edits: &[Script {
            from: "AND (l.number IS NULL OR NOT EXISTS (SELECT FROM taken t WHERE t.number = l.number))",
            to: "",
        }],
        caught_by: &["servers postgres::operate_advisory::the_row_of_a_lock_that_is_held_for_long_stays"],
    },
    Mutant {
        name: "a_session_that_looks_at_no_revocation",
        edits: &[Rust {
            file: "backend/stores/postgres_advisory/look.rs",
            from: "            Ok(last) if self.revocations.has_to_read(last) => {",
            to: "            Ok(last) if !mutant!() && self.revocations.has_to_read(last) => {",
        }],
        caught_by: &[
            "postgres_advisory::revoke::a_live_holder_is_told_soon_and_the_lock_is_granted_when_it_has_left",
        ],
    },
    Mutant {
        name: "a_revocation_of_an_advisory_lock_compares_no_version",
        edits: &[
            Script {
                from: "WHERE l.name = $2 AND l.version = $3 AND l.session IN",
                to: "WHERE l.name = $2 AND $3::bigint IS NOT NULL AND l.session IN",
            },
            Script {
                from: "WHERE l.name = $2 AND l.version = $3 AND l.session = h.mark",
                to: "WHERE l.name = $2 AND l.session = h.mark",
            },
        ],
        caught_by: &[
            "postgres_advisory::revoke::a_wrong_token_revokes_nothing",
            "postgres_advisory::revoke::a_wrong_token_frees_nothing_by_force",
        ],
    },
    Mutant {
        name: "force_without_a_token_that_ends_a_session_of_ours",
        edits: &[Script {
            from: "WHEN $3::bigint IS NULL THEN h.mark IS NULL",
            to: "WHEN $3::bigint IS NULL THEN true",
        }],
        caught_by: &["postgres_advisory::revoke::a_holder_of_ours_is_not_freed_as_one_without_a_token"],
    },
    Mutant {
        name: "a_row_that_describes_whatever_session_has_the_lock",
        edits: &[Script {
            from: "coalesce(h.mark = l.session, false) AS is_described",
            to: "l.session IS NOT NULL AS is_described",
        }],
        caught_by: &[
            "servers postgres::operate_advisory::a_holder_of_another_program_is_not_the_holder_in_the_row",
        ],
    },
    // ZooKeeper.
    Mutant {
        name: "a_revocation_in_zookeeper_compares_no_token",
        edits: &[Rust {
            file: "backend/stores/zookeeper/operate.rs",
            from: "        Some(token) if token != holder.token() => Ok(false),",
            to: "        Some(token) if token != holder.token() && !mutant!() => Ok(false),",
        }],
        caught_by: &[
            "zookeeper::revoke::a_wrong_token_revokes_nothing",
            "zookeeper::revoke::a_wrong_token_frees_nothing_by_force",
            "zookeeper::revoke::a_grant_that_was_released_cannot_be_revoked_and_the_next_one_is_spared",
        ],
    },
    Mutant {
        name: "a_mark_in_zookeeper_is_not_seen",
        edits: &[Rust {
            file: "backend/stores/zookeeper/attention.rs",
            from: "        Ok((data, _)) => Ok(record::is_revoked(&data)),",
            to: "        Ok((data, _)) => Ok(record::is_revoked(&data) && !mutant!()),",
        }],
        caught_by: &["zookeeper::revoke::a_live_holder_is_told_soon_and_the_lock_is_granted_when_it_has_left"],
    },
    Mutant {
        name: "a_revoked_session_lock_is_over_at_once",
        edits: &[Rust {
            file: "backend/stores/zookeeper/hold.rs",
            from: "        self.session.lifetime.revoke(self.number());",
            to: "        self.over.fetch_or(mutant!(), Ordering::AcqRel);
        self.session.lifetime.revoke(self.number());",
        }],
        // The library would release the lock while its holder is still at work.
        caught_by: &["zookeeper::revoke::a_live_holder_is_told_soon_and_the_lock_is_granted_when_it_has_left"],
    },
    Mutant {
        name: "nodes_without_a_watch_are_not_read",
        edits: &[Rust {
            file: "backend/stores/zookeeper/held_node.rs",
            from: ".take(MAX_READS_PER_HEARTBEAT)",
            to: ".take(if mutant!() { 0 } else { MAX_READS_PER_HEARTBEAT })",
        }],
        caught_by: &[
            "servers zookeeper::operate::a_holder_without_a_watch_learns_of_a_revocation_and_of_a_deletion",
        ],
    },
    Mutant {
        name: "a_holder_of_ours_is_freed_without_a_token",
        edits: &[Rust {
            file: "backend/stores/zookeeper/operate.rs",
            from: "Ok(is_foreign == Some(true) && revoke.is_forced)",
            to: "Ok((mutant!() || is_foreign == Some(true)) && revoke.is_forced)",
        }],
        caught_by: &["zookeeper::revoke::a_holder_of_ours_is_not_freed_as_one_without_a_token"],
    },
    Mutant {
        name: "a_holder_that_sees_no_mark_is_marked",
        edits: &[Rust {
            file: "backend/stores/zookeeper/operate.rs",
            from: "        Some(_) if is_foreign == Some(true) => {",
            to: "        Some(_) if is_foreign == Some(true) && !mutant!() => {",
        }],
        caught_by: &[
            "servers zookeeper::operate::a_node_that_was_overwritten_is_held_on_and_is_revoked_by_force_alone",
        ],
    },
    Mutant {
        name: "contenders_in_the_order_of_the_listing",
        edits: &[Rust {
            file: "backend/stores/zookeeper/queue.rs",
            from: "    contenders.sort_unstable();",
            to: "    if !mutant!() {
        contenders.sort_unstable();
    }",
        }],
        caught_by: &["unit backend::stores::zookeeper::queue::tests::contenders_are_shown_in_their_order"],
    },
    Mutant {
        name: "a_lock_of_another_user_ends_a_scan",
        edits: &[Rust {
            file: "backend/stores/zookeeper/operate.rs",
            from: "            Err(zk::Error::NoNode | zk::Error::NoAuth) => Vec::new(),",
            to: "            Err(zk::Error::NoAuth) if mutant!() => return Err(Failure::of(zk::Error::NoAuth)),
            Err(zk::Error::NoNode | zk::Error::NoAuth) => Vec::new(),",
        }],
        caught_by: &["servers zookeeper::operate::the_right_that_an_operator_lacks_is_named"],
    },
    Mutant {
        name: "the_contender_ahead_is_said_to_be_the_holder",
        edits: &[Rust {
            file: "backend/stores/zookeeper/attempt.rs",
            from: "            let is_holder = queue::place(&children, &before, |_| true) == Place::First;",
            to: "            let is_holder = mutant!() || queue::place(&children, &before, |_| true) == Place::First;",
        }],
        caught_by: &["servers zookeeper::operate::an_error_names_the_holder_and_no_waiter_ahead"],
    },
];
