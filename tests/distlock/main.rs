//! The command `distlock`, on every store that processes share.
//!
//! `cargo test --test distlock -- redis::` runs the tests of one store, `-- alone::` those that need but one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]
#![allow(unreachable_pub, dead_code, reason = "a program, not a library")]

mod command;
mod contest;
mod doctor;
mod doctor_sql;
mod endings;
mod every_store;
mod losses;
mod periods;
mod secrets;
#[path = "../stores/mod.rs"]
mod stores;
mod terminal;

use std::{
    env, fs,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use libtest_mimic::{Arguments, Completion, Trial};
use lock_conformance::{Admission, Demand, Store, support};

fn main() -> ExitCode {
    if ignores_interrupts() {
        // A signal that is ignored stays ignored in every program that is started from here, as behind an `&` of a script or
        // after `nohup`.
        let program = env::current_exe().expect("it is known");
        let mut again = Command::new("env");
        let error =
            again.arg("--default-signal=HUP,INT,QUIT").arg(program).args(env::args_os().skip(1)).exec();
        panic!("the tests need HUP, INT and QUIT: {error}");
    }
    let mut arguments = Arguments::from_args();
    let admission = Admission::for_this_machine(&mut arguments);
    let mut shared: Vec<_> = stores::all()
        .into_iter()
        .filter(|store| store.capabilities().is_shared_between_processes())
        .collect();
    // The tests of these take longest, because a hold does not end before its session.
    shared.sort_by_key(|store| store.capabilities().session_timeout().is_none());
    let mut trials = Vec::new();
    // These take longest, so they are first.
    for (of, name, test) in doctor_sql::TESTS {
        let store = stores::all().into_iter().find(|store| store.name() == *of).expect("compiled in");
        trials.push(trial(format!("doctor::{of}::{name}"), store, &admission, test));
    }
    let alone = stores::all().into_iter().find(|store| store.name() == "redis").expect("compiled in");
    let groups =
        [endings::TESTS, losses::TESTS, secrets::TESTS, terminal::TESTS, contest::TESTS, periods::TESTS];
    for (name, test) in doctor::TESTS.concat().into_iter().chain(groups.concat()) {
        trials.push(trial(format!("alone::{name}"), alone, &admission, move || test(alone)));
    }
    for &store in &shared {
        let tests = every_store::trials(store).into_iter();
        trials.extend(tests.map(|(name, test)| trial(name, store, &admission, test)));
    }
    let all = shared.clone();
    trials.push(
        Trial::test("long::twenty_periods_on_each_store", move || {
            periods::twenty_periods(&all);
            Ok(())
        })
        .with_ignored_flag(true),
    );
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

/// Whether HUP, INT or QUIT is ignored in this process.
fn ignores_interrupts() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // HUP is the first signal, INT the second, and QUIT the third.
    ignored.is_some_and(|mask| mask & 0b111 != 0)
}

/// A test of a store that may be absent.
fn trial(
    name: String,
    store: &'static dyn Store,
    admission: &Admission,
    test: impl FnOnce() + Send + 'static,
) -> Trial {
    let admission = admission.clone();
    let is_required = lock_conformance::required().iter().any(|name| name == store.name());
    match store.absence() {
        None => Trial::test(name, move || {
            let _admitted = admission.admit(Demand::default());
            test();
            Ok(())
        }),
        Some(why) if is_required => Trial::test(name, move || Err(why.into())),
        Some(why) => Trial::ignorable_test(name, move || Ok(Completion::ignored_with(why))),
    }
}
