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
            from: "        if let Some(replicas) = &self.replicas {
            let id",
            to: "        if let Some(replicas) = self.replicas.as_ref().filter(|_| !mutant!()) {
            let id",
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
];
