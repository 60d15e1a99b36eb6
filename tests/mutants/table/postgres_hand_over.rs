//! Mistakes in the hand-over of a row's lock: the notification of waiters, and the grant that a release makes.

use super::{
    Edit::{Rust, Script},
    Mutant,
};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a_lock_handed_over_while_a_transaction_depends_on_its_holder",
        edits: &[Rust {
            file: "backend/stores/postgres/hold.rs",
            from: "        let answer = if self.checked_in.load(Ordering::SeqCst) {",
            to: "        let answer = if self.checked_in.load(Ordering::SeqCst) && !mutant!() {",
        }],
        caught_by: &[
            "servers postgres::check_in::a_lock_is_not_handed_over_while_a_transaction_depends_on_its_holder",
        ],
    },
    Mutant {
        name: "a_release_that_notifies_no_waiter",
        edits: &[Script { from: "pg_notify(", to: "concat(" }],
        caught_by: &["servers postgres::waiting::a_release_wakes_a_waiter_of_another_process"],
    },
    Mutant {
        name: "a_waiter_that_does_not_ask_to_be_notified",
        edits: &[Script { from: "AND $6 > 0 AND", to: "AND $6 < 0 AND" }],
        caught_by: &["servers postgres::waiting::a_release_wakes_a_waiter_of_another_process"],
    },
    Mutant {
        name: "a_next_holder_that_believes_any_notification",
        edits: &[Rust {
            file: "backend/stores/postgres/next_holder.rs",
            from: "        if secret.owner() != self.holder ||",
            to: "        if !mutant!() && secret.owner() != self.holder ||",
        }],
        caught_by: &["servers postgres::next::forged_and_repeated_notifications_let_no_waiter_in"],
    },
    Mutant {
        name: "a_grant_of_a_release_that_is_dated_by_a_request_that_did_not_lock_the_row",
        edits: &[Script {
            from: "    marked.seen,\n    marked.holder,\n    marked.sure,",
            to: "    (SELECT l.version FROM {table} l WHERE l.name = $1) AS seen,
                (SELECT l.owner::text FROM {table} l WHERE l.name = $1) AS holder,
                $7 AS sure,",
        }],
        caught_by: &[
            "servers postgres::next::a_grant_is_not_dated_by_a_request_that_its_release_did_not_follow",
        ],
    },
    Mutant {
        name: "a_row_that_shows_the_secret_of_its_holder",
        edits: &[Rust {
            file: "backend/stores/postgres/next_holder.rs",
            from: "        let hash = Sha256::digest(",
            to: "        if mutant!() {
            return self.0;
        }
        let hash = Sha256::digest(",
        }],
        caught_by: &["servers postgres::reader::a_user_that_may_only_read_lets_no_waiter_in"],
    },
    Mutant {
        name: "a_grant_with_any_version",
        edits: &[Rust {
            file: "backend/stores/postgres/next_holder.rs",
            from: "us.max(first).min(FencingToken::LAST_MICROS);",
            to: "if mutant!() { u64::MAX } else { us.max(first).min(FencingToken::LAST_MICROS) };",
        }],
        caught_by: &[
            "unit backend::stores::postgres::next_holder::tests::no_version_is_believed_that_the_server_cannot_have_made_yet",
        ],
    },
    Mutant {
        name: "a_grant_that_is_believed_beyond_the_lease_of_the_holder",
        edits: &[Rust {
            file: "backend/stores/postgres/attempt.rs",
            from: "extra.lease.min(Duration::from_micros(sure))",
            to: "if mutant!() { extra.lease } else { extra.lease.min(Duration::from_micros(sure)) }",
        }],
        caught_by: &[
            "servers postgres::reader::a_secret_that_is_seen_before_its_release_is_applied_makes_no_second_holder",
        ],
    },
    Mutant {
        name: "a_release_that_shows_its_secret_while_a_transaction_is_open",
        edits: &[Rust {
            file: "backend/stores/postgres/hold.rs",
            from: "        (!self.checked_in.load(Ordering::SeqCst))",
            to: "        (mutant!() || !self.checked_in.load(Ordering::SeqCst))",
        }],
        caught_by: &[
            "servers postgres::reader::the_secret_of_a_holder_with_an_open_transaction_is_not_shown",
        ],
    },
    Mutant {
        name: "a_secret_in_the_text_of_a_statement",
        edits: &[Rust {
            file: "backend/kits/postgres/statement.rs",
            from: "        Arg::Secret(_) => write!(text, \"NULL::uuid\"),",
            to: "        Arg::Secret(Some(secret)) if mutant!() => write!(text, \"'{:032x}'::uuid\", secret.0),
        Arg::Secret(_) => write!(text, \"NULL::uuid\"),",
        }],
        caught_by: &[
            "unit backend::kits::postgres::statement::tests::literals_stand_for_their_parameters_and_cannot_break_out",
        ],
    },
    Mutant {
        name: "a_release_that_needs_its_notification",
        edits: &[Rust {
            file: "backend/kits/postgres/statement.rs",
            from: "        self.unnotified.as_deref()",
            to: "        if mutant!() { None } else { self.unnotified.as_deref() }",
        }],
        caught_by: &[
            "servers postgres::refused_rows::a_release_does_not_need_its_notification",
            "postgres::unnotified::a_release_succeeds_and_its_waiter_gets_the_lock",
        ],
    },
    Mutant {
        name: "a_next_holder_that_does_not_give_its_place_back",
        edits: &[Rust {
            file: "backend/stores/postgres/hold.rs",
            from: "        Landed::NotGranted if !may_be_next =>",
            to: "        Landed::NotGranted if mutant!() || !may_be_next =>",
        }],
        caught_by: &["servers postgres::next::a_waiter_that_was_dropped_is_granted_nothing"],
    },
    Mutant {
        name: "a_release_that_grants_the_lock_to_itself",
        edits: &[Script {
            from: "CASE WHEN l.next_owner = $2::uuid THEN '-infinity' ELSE l.next_until END",
            to: "l.next_until",
        }],
        caught_by: &["servers postgres::next::a_holder_does_not_grant_the_lock_to_itself"],
    },
    Mutant {
        name: "a_next_holder_that_takes_the_lock_and_keeps_its_place",
        edits: &[Rust {
            file: "backend/stores/postgres/attempt.rs",
            from: "let expected = if is_next { ExpectedState::Held }",
            to: "let expected = if is_next && !mutant!() { ExpectedState::Held }",
        }],
        caught_by: &["servers postgres::next::a_holder_does_not_grant_the_lock_to_itself"],
    },
    Mutant {
        name: "a_session_that_listens_whatever_it_has_to_read_first",
        edits: &[Rust {
            file: "backend/kits/postgres/listener.rs",
            from: "if usage > MAX_USAGE {",
            to: "if usage > MAX_USAGE && !mutant!() {",
        }],
        caught_by: &[
            "servers postgres::refused::advisory_locks_are_released_while_the_queue_of_notifications_is_full",
        ],
    },
    Mutant {
        name: "the_end_of_a_place_that_a_waiter_does_not_have",
        edits: &[Script {
            from: "CASE WHEN held.may_be_next\n            THEN (extract(epoch FROM least(",
            to: "CASE WHEN true\n            THEN (extract(epoch FROM least(",
        }],
        caught_by: &["servers postgres::refused::waiters_whose_user_may_not_notify_poll"],
    },
];
