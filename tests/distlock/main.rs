//! The command `distlock`, on every store that processes share.
//!
//! `cargo test --test distlock -- redis::` runs the tests of one store, `-- alone::` those that need but one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]
#![allow(unreachable_pub, dead_code, reason = "a program, not a library")]

mod command;
mod contest;
mod endings;
mod every_store;
mod losses;
mod secrets;
#[path = "../stores/mod.rs"]
mod stores;
mod terminal;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Trial};
use lock_conformance::{Store, support};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Most of a test is waiting for time to pass.
    arguments.test_threads.get_or_insert(16);
    let shared: Vec<_> = stores::all()
        .into_iter()
        .filter(|store| store.capabilities().is_shared_between_processes())
        .collect();
    let mut trials = Vec::new();
    for &store in &shared {
        trials.extend(every_store::trials(store).into_iter().map(|(name, test)| trial(name, store, test)));
    }
    let alone = stores::all().into_iter().find(|store| store.name() == "redis").expect("compiled in");
    let groups = [endings::TESTS, losses::TESTS, secrets::TESTS, terminal::TESTS, contest::TESTS];
    for (name, test) in groups.concat() {
        trials.push(trial(format!("alone::{name}"), alone, move || test(alone)));
    }
    trials.push(
        Trial::test("long::a_thousand_runs_over_all_stores", move || {
            contest::a_thousand_runs(&shared);
            Ok(())
        })
        .with_ignored_flag(true),
    );
    let conclusion = libtest_mimic::run(&arguments, trials);
    for store in stores::all() {
        store.finish();
    }
    support::processes::finish();
    conclusion.exit_code()
}

/// A test of a store that may be absent.
fn trial(name: String, store: &'static dyn Store, test: impl FnOnce() + Send + 'static) -> Trial {
    let is_required = lock_conformance::required().iter().any(|name| name == store.name());
    match store.absence() {
        None => Trial::test(name, move || {
            test();
            Ok(())
        }),
        Some(why) if is_required => Trial::test(name, move || Err(why.into())),
        Some(why) => Trial::ignorable_test(name, move || Ok(Completion::ignored_with(why))),
    }
}
