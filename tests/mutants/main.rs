//! Mutants: mistakes that other libraries shipped, built in on purpose; each must be caught by its named tests.
//!
//! One build of a copy of the sources has all of them; one is chosen at run time. The sources themselves are
//! untouched. `cargo test --test mutants -- --ignored` takes minutes; `tests/run all` does it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]
#![allow(unreachable_pub, reason = "a program, not a library")]

mod copy;
mod table;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Command, ExitCode},
    sync::LazyLock,
};

use libtest_mimic::{Arguments, Failed, Trial};
use table::Mutant;

static PROGRAMS: LazyLock<BTreeMap<&str, PathBuf>> = LazyLock::new(copy::build);

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each waits most of the time, but the tests that it runs are timed.
    arguments.test_threads.get_or_insert(3);
    let trials = table::mutants()
        .map(|mutant| Trial::test(mutant.name, || is_caught(mutant)).with_ignored_flag(true))
        .chain([
            Trial::test("every_mutant_fits_the_sources", || {
                copy::edited();
                table::mutants().flat_map(|mutant| mutant.caught_by).for_each(|test| _ = copy::program(test));
                Ok(())
            }),
            Trial::test("every_mutant_compiles", || copy::check().map_err(Failed::from)),
        ])
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn is_caught(mutant: &Mutant) -> Result<(), Failed> {
    for test in mutant.caught_by {
        let output = run(test, "");
        if !passes(test, &output)? {
            return Err(format!("{test} fails without any mutant:\n{output}").into());
        }
        // Whether a mistake shows may depend on which of two threads is faster.
        let mut unseen = None;
        for _ in 0..3 {
            let output = run(test, mutant.name);
            unseen = passes(test, &output)?.then_some(output);
            if unseen.is_none() {
                break;
            }
        }
        if let Some(output) = unseen {
            return Err(format!("{test} does not see it:\n{output}").into());
        }
    }
    Ok(())
}

/// Whether the test passed, by its output.
fn passes(test: &str, output: &str) -> Result<bool, Failed> {
    let ended = |outcome| output.lines().any(|line| line.starts_with("test ") && line.ends_with(outcome));
    match (ended("ok"), ended("FAILED")) {
        (passed, failed) if passed != failed => Ok(passed),
        _ => Err(format!("{test} was not run:\n{output}").into()),
    }
}

/// Returns the output of the test while this mutant is chosen.
fn run(test: &'static str, mutant: &str) -> String {
    let (program, test) = copy::program(test);
    let output = Command::new(&PROGRAMS[program])
        .args(["--exact", test])
        .env("LOCK_MUTANT", mutant)
        .env("LOCK_TEST_LARGE", "yes")
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
