//! The conformance suite of stores: what every store of distributed locks must do, with real servers and under injected
//! faults.
//!
//! It tests a store through the managers, guards, attribute and layers that stand above it, so it needs to know little of
//! it: how it is reached ([`Store`]), and how it can be hurt ([`Site`]). A case says what must hold, and never on which
//! store it runs; it is left out where the store does not have what it needs.
//!
//! # Testing a store of one's own
//!
//! The store's package has a test with `harness = false` in its `Cargo.toml`:
//!
//! ```toml
//! [dev-dependencies]
//! lock-conformance = { git = "…" } # the repository of lock-runtime
//!
//! [[test]]
//! name = "conformance"
//! harness = false
//! ```
//!
//! and in `tests/conformance.rs`:
//!
//! ```ignore
//! fn main() -> std::process::ExitCode {
//!     lock_conformance::run(&[&MyStore])
//! }
//! ```
//!
//! `cargo test --test conformance -- my_store::wait` runs a part. The page "Writing a store" of `lock-runtime` has a whole
//! store with its test.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]
#![allow(unreachable_pub, dead_code, reason = "the support is shared with other tests")]

#[allow(clippy::must_use_candidate, reason = "written for tests")]
mod admission;
mod case;
mod cases;
mod client_process;
mod fixture;
mod polling;
mod store;
#[doc(hidden)]
#[allow(
    clippy::must_use_candidate,
    clippy::missing_errors_doc,
    clippy::new_without_default,
    clippy::should_implement_trait,
    reason = "written for tests"
)]
#[path = "../support/mod.rs"]
pub mod support;
mod times;

use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    sync::Arc,
    time::Instant,
};

use libtest_mimic::{Arguments, Completion, Trial};

#[doc(hidden)]
pub use self::admission::{Admission, Demand};
#[doc(hidden)]
pub use self::cases::torture::survive;
pub use self::store::{CANARY, Fault, Foreign, Server, Site, Store};

/// Runs the suite on these stores, with the arguments of the command line: those of `cargo test`. To be called by `main`, once
/// and with nothing before it: the suite starts its own program again for clients in other processes.
///
/// A store whose server is absent is reported as ignored, unless the environment variable `LOCK_TEST_REQUIRE` (a list with
/// commas) names it. `LOCK_TEST_BRIEF` leaves out [the groups of another store](Store::groups_of_another).
/// `LOCK_TEST_TIMES` names a file for the seconds that each case took, the longest first.
#[must_use]
pub fn run(stores: &[&'static dyn Store]) -> ExitCode {
    run_with(stores, Vec::new())
}

/// Runs further tests as well.
#[must_use]
pub fn run_with(stores: &[&'static dyn Store], mut trials: Vec<Trial>) -> ExitCode {
    if let Ok(role) = env::var(support::child::ROLE) {
        client_process::run(&role, stores);
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    let admission = Admission::for_this_machine(&mut arguments);
    let (cases, scarce) = trials_of(stores, &admission);
    trials.extend(cases);
    // So many that there are always as many for the other cases.
    arguments.test_threads = arguments.test_threads.map(|threads| threads + scarce);
    support::traces::watch("lock_", &[CANARY]);
    let conclusion = libtest_mimic::run(&arguments, trials);
    let finished: Vec<_> =
        stores.iter().map(|store| catch_unwind(AssertUnwindSafe(|| store.finish()))).collect();
    support::processes::finish();
    times::write();
    let (traces, leaks) = support::traces::found();
    println!("{traces} traces were read");
    if !leaks.is_empty() {
        eprintln!("secrets in the traces: {leaks:#?}");
        return ExitCode::FAILURE;
    }
    if finished.iter().any(Result::is_err) {
        eprintln!("a shared server could not be stopped, or what was done to it failed; see above");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// The cases that fit each store, and the number of those that may have to wait for other cases of their kind.
///
/// The cases that may have to wait come first: they run one after the other or a few at a time, and otherwise the last of
/// them would still run when all other cases have ended. Apart from that the stores take turns, and each begins at another
/// case. Those with sessions end earlier, because their cases take longest: a hold does not end before its session.
fn trials_of(stores: &[&'static dyn Store], admission: &Admission) -> (Vec<Trial>, usize) {
    let required = required();
    let is_brief = env::var_os("LOCK_TEST_BRIEF").is_some();
    let absences: Vec<_> = stores.iter().map(|store| store.absence().map(Arc::<str>::from)).collect();
    let cases: Vec<_> = cases::all().into_iter().map(Arc::new).collect();
    let (mut scarce, mut others): (_, Vec<(usize, Trial)>) = (Vec::new(), Vec::new());
    for step in 0..cases.len() {
        for (number, (&store, absence)) in stores.iter().zip(&absences).enumerate() {
            let case = Arc::clone(&cases[(step + number * cases.len() / stores.len()) % cases.len()]);
            if !case.fits(store) || (is_brief && store.groups_of_another().contains(&case.group())) {
                continue;
            }
            let name = format!("{}::{}", store.name(), case.name());
            let demand = case.demand(store);
            let trial = match absence.clone() {
                None => {
                    let admission = admission.clone();
                    Trial::test(name.clone(), move || {
                        let _admitted = admission.admit(demand);
                        let began = Instant::now();
                        let ran = times::measured(&name, || case.run(&name, store));
                        match ran {
                            Err(failed) if store.lost_a_server_since(began) => {
                                println!("{name} runs again, because a server died meanwhile: {failed:?}");
                                case.run(&name, store)
                            }
                            ran => ran,
                        }
                    })
                }
                Some(why) if required.iter().any(|name| name == store.name()) => {
                    Trial::test(name, move || {
                        Err(format!("`{}` is in LOCK_TEST_REQUIRE, but {why}", store.name()).into())
                    })
                }
                Some(why) => Trial::ignorable_test(name, move || Ok(Completion::ignored_with(why))),
            };
            if demand.is_scarce() {
                scarce.push(trial);
            } else {
                let has_sessions = store.capabilities().session_timeout().is_some();
                others.push((step * if has_sessions { 4 } else { 5 }, trial));
            }
        }
    }
    let count = scarce.len();
    others.sort_by_key(|(place, _)| *place);
    scarce.extend(others.into_iter().map(|(_, trial)| trial));
    (scarce, count)
}

/// Returns the names of the stores that must be present.
#[doc(hidden)]
#[must_use]
pub fn required() -> Vec<String> {
    let list = env::var("LOCK_TEST_REQUIRE").unwrap_or_default();
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(Into::into).collect()
}

/// Tests of the suite's own tools, for [`run_with`].
#[doc(hidden)]
#[must_use]
pub fn tests_of_the_suite() -> Vec<Trial> {
    cases::self_test::trials()
}

/// The names of all cases, whatever they need.
#[doc(hidden)]
#[must_use]
pub fn case_names() -> Vec<String> {
    cases::all().iter().map(case::Case::name).collect()
}
