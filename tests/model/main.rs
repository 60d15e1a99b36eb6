//! Models of the protocols, searched exhaustively.
//!
//! * [`queue`]: the hand-over of the Redis queue.
//! * [`quorum`]: acquisition, fencing, extension and revocation on a quorum of independent nodes.
//! * [`row`]: the next holder in a row of PostgreSQL, beside a user who may only read, and beside an operator.
//!
//! The variants `right::…` are checked in every reachable state (as far as 64-bit fingerprints distinguish states).
//! The search asserts this, and that the events a variant is about did occur in it. The variants `mutant::…` break
//! one rule each, and must be caught by the property and in the number of steps that the table in `variants.rs`
//! states: so the models do detect such mistakes. The properties are listed in `properties.rs`.
//!
//! # How to run them
//! ```text
//! cargo test -p lock-model                      all but the long ones
//! cargo test -p lock-model -- quorum::          one of the three
//! cargo test -p lock-model -- mutant            the mutants
//! cargo test --release -p lock-model -- --ignored    the long searches
//! LOCK_MODEL_TRACE=1 cargo test -p lock-model -- --exact queue::mutant::release_without_compare
//! ```
//!
//! # How to read a counter-example
//! Steps are numbered, with the states between them. The notation of the states is in the module of each model.

mod queue;
mod quorum;
mod row;
mod search;

use std::{env, process::ExitCode};

use libtest_mimic::{Arguments, Trial};

/// Half of the time of all that are not long; left out where `LOCK_TEST_BRIEF` is set.
const SLOW: [&str; 12] = [
    "queue::right::late_requests_of_attempts_that_ended",
    "queue::right::longer_times",
    "queue::right::three_clients",
    "queue::right::groups_beside_lone_calls",
    "queue::right::revoked_in_groups_and_cohorts",
    "queue::right::strict_client_needs_no_second_wall",
    "queue::right::loose_client_asks_again",
    "queue::mutant::renewal_without_fence",
    "quorum::right::two_rounds_executed_twice",
    "quorum::mutant::write_back_by_owner",
    "quorum::mutant::extension_that_only_compares",
    "quorum::mutant::late_extension_rejoined_before_the_wait_is_over",
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials: Vec<_> = queue::all().into_iter().chain(quorum::all()).chain(row::all()).collect();
    for name in SLOW {
        assert!(trials.iter().any(|trial| trial.name() == name), "there is no {name}");
    }
    if env::var_os("LOCK_TEST_BRIEF").is_some() {
        let is_left_out = |trial: &Trial| SLOW.contains(&trial.name()) || trial.has_ignored_flag();
        trials = trials
            .into_iter()
            .map(|trial| {
                let is_left_out = is_left_out(&trial);
                trial.with_ignored_flag(is_left_out)
            })
            .collect();
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
