//! Do two holders of one lock overlap? In sections that follow each other closely, while primaries are replaced, and in a bank.
//!
//! For `tests/run all`, the long ones: `cargo test --test overlaps -- --ignored`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]
#![allow(unreachable_pub, dead_code, reason = "the support is shared with other tests")]

mod bank;
mod failovers;
mod sections;
#[path = "../support/mod.rs"]
mod support;

use std::{env, process::ExitCode};

use libtest_mimic::Arguments;
use support::{child, processes};

fn main() -> ExitCode {
    if let Ok(role) = env::var(child::ROLE) {
        match role.as_str() {
            sections::ROLE => sections::enter_sections(),
            failovers::ROLE => failovers::hold_locks(),
            _ => panic!("unknown role {role}"),
        }
        return ExitCode::SUCCESS;
    }
    let tests = [sections::trials(), failovers::trials(), bank::trials()].into_iter().flatten().collect();
    let mut arguments = Arguments::from_args();
    // Each keeps all processors busy, and servers that are kept waiting are taken for dead.
    arguments.test_threads = Some(1);
    let conclusion = libtest_mimic::run(&arguments, tests);
    processes::finish();
    conclusion.exit_code()
}
