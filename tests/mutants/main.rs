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
use table::{MUTANTS, Mutant};

static PROGRAMS: LazyLock<BTreeMap<&str, PathBuf>> = LazyLock::new(copy::build);

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each waits most of the time, but the tests that it runs are timed.
    arguments.test_threads.get_or_insert(3);
    let trials = MUTANTS
        .iter()
        .map(|mutant| Trial::test(mutant.name, || is_caught(mutant)).with_ignored_flag(true))
        .chain([Trial::test("every_mutant_fits_the_sources_and_compiles", || {
            copy::edited();
            MUTANTS.iter().flat_map(|mutant| mutant.caught_by).for_each(|test| _ = copy::program(test));
            copy::check().map_err(Failed::from)
        })])
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn is_caught(mutant: &Mutant) -> Result<(), Failed> {
    for test in mutant.caught_by {
        for (chosen, expected) in [("", true), (mutant.name, false)] {
            let output = run(test, chosen);
            let line =
                |outcome| output.lines().any(|line| line.starts_with("test ") && line.ends_with(outcome));
            let (passed, failed) = (line("ok"), line("FAILED"));
            if passed == failed {
                return Err(format!("{test} was not run:\n{output}").into());
            }
            if passed != expected {
                let what = if expected { "fails without any mutant" } else { "does not see it" };
                return Err(format!("{test} {what}:\n{output}").into());
            }
        }
    }
    Ok(())
}

/// Returns the output of the test while this mutant is chosen.
fn run(test: &'static str, mutant: &str) -> String {
    let (program, test) = copy::program(test);
    let output =
        Command::new(&PROGRAMS[program]).args(["--exact", test]).env("LOCK_MUTANT", mutant).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
