//! Models of the protocols, searched exhaustively.
//!
//! * [`queue`]: the hand-over of the Redis queue.
//! * [`quorum`]: acquisition, fencing and extension on a quorum of independent nodes.
//! * [`row`]: the next holder in a row of PostgreSQL, beside a user who may only read.
//!
//! The variants `right::…` are checked in every reachable state (as far as 64-bit fingerprints distinguish states).
//! The search asserts this, and that the events a variant is about did occur in it. The variants `mutant::…` break
//! one rule each, and must be caught by the property and in the number of steps that the table in `variants.rs`
//! states: so the models do detect such mistakes. The properties are listed in `properties.rs`.
//!
//! # How to run them
//! ```text
//! cargo test -p lock-model                      all, in about a minute on one core
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

use std::process::ExitCode;

use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = queue::all().into_iter().chain(quorum::all()).chain(row::all()).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
