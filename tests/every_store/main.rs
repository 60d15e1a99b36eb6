//! The conformance suite on the stores of this workspace, and the tests of the suite itself.
//!
//! `cargo test --test conformance -- redis::wait` runs a part.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]
#![allow(unreachable_pub, dead_code, reason = "a program, not a library")]

mod bugs;
#[path = "../stores/mod.rs"]
mod stores;

use std::process::{Command, ExitCode};

use libtest_mimic::Trial;
use lock_conformance::{Store, support};

fn main() -> ExitCode {
    for name in lock_conformance::required() {
        assert!(
            stores::all().iter().any(|store| store.name() == name),
            "LOCK_TEST_REQUIRE names `{name}`, which this build does not have"
        );
    }
    let mut trials = lock_conformance::tests_of_the_suite();
    trials.extend(bugs::trials());
    trials.push(Trial::test("each_store_is_known_to_the_script_that_runs_the_tests", || {
        each_store_is_known_to_the_script_that_runs_the_tests();
        Ok(())
    }));
    lock_conformance::run_with(&stores::all(), trials)
}

fn each_store_is_known_to_the_script_that_runs_the_tests() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run");
    let usage = Command::new(script).arg("--help").output().unwrap().stdout;
    let usage = String::from_utf8(usage).unwrap();
    let known_there =
        usage.lines().find_map(|line| line.split_once("these stores: ")).expect("it lists them").1;
    let names: Vec<_> = stores::known(|file| !file.is_large).into_iter().map(Store::name).collect();
    assert_eq!(known_there.split(' ').collect::<Vec<_>>(), names);
}
