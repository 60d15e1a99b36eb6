//! Every store against every case: one suite, the real servers, under injected faults.
//!
//! A case states a claim and never the store it runs on; a store states only how it is reached and how it can be
//! hurt. `cargo test --test conformance -- redis::wait` runs a part. A store whose server is absent is reported as
//! ignored, unless `LOCK_TEST_REQUIRE` (a list with commas) names it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]
#![allow(unreachable_pub, dead_code, reason = "the support is shared with other tests")]

mod case;
mod cases;
mod client_process;
mod fixture;
mod polling;
mod stores;
#[path = "../support/mod.rs"]
mod support;

use std::{env, process::ExitCode, sync::Arc};

use libtest_mimic::{Arguments, Completion, Trial};

fn main() -> ExitCode {
    if let Ok(role) = env::var(support::child::ROLE) {
        client_process::run(&role);
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    // Most of a case is waiting for time to pass.
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    arguments.test_threads.get_or_insert(cores * 8);
    let required = required();
    let mut trials = cases::without_a_store();
    for store in stores::all() {
        let absence = store.absence().map(Arc::<str>::from);
        for case in cases::all().into_iter().filter(|case| case.fits(store)) {
            let name = format!("{}::{}", store.name(), case.name());
            trials.push(match absence.clone() {
                None => Trial::test(name.clone(), move || case.run(&name, store)),
                Some(why) if required.iter().any(|name| name == store.name()) => {
                    Trial::test(name, move || {
                        Err(format!("`{}` is in LOCK_TEST_REQUIRE, but {why}", store.name()).into())
                    })
                }
                Some(why) => Trial::ignorable_test(name, move || Ok(Completion::ignored_with(why))),
            });
        }
    }
    support::traces::watch("lock_", &[stores::CANARY]);
    let conclusion = libtest_mimic::run(&arguments, trials);
    stores::finish();
    support::processes::finish();
    let (traces, leaks) = support::traces::found();
    println!("{traces} traces were read");
    if !leaks.is_empty() {
        eprintln!("secrets in the traces: {leaks:#?}");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// The stores that must be present.
fn required() -> Vec<String> {
    let list = env::var("LOCK_TEST_REQUIRE").unwrap_or_default();
    let names: Vec<String> =
        list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(Into::into).collect();
    for name in &names {
        assert!(
            stores::all().iter().any(|store| store.name() == name),
            "LOCK_TEST_REQUIRE names `{name}`, which this build does not have"
        );
    }
    names
}
