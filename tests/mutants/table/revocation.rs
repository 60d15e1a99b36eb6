//! Mistakes about locks that operators look at or take from their holders.

use super::{Edit::Rust, Mutant};

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
];
