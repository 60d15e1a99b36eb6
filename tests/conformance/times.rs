//! How long each case took: what one has to know before one makes the suite faster.

use std::{
    env, fs,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

static TIMES: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// Runs a case, and notes how long that takes.
pub fn measured<T>(name: &str, run: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = run();
    TIMES.lock().unwrap_or_else(PoisonError::into_inner).push((begun.elapsed(), name.to_owned()));
    result
}

/// Writes the file that `LOCK_TEST_TIMES` names.
pub fn write() {
    let Some(file) = env::var_os("LOCK_TEST_TIMES") else { return };
    let mut times = TIMES.lock().unwrap_or_else(PoisonError::into_inner);
    times.sort_unstable_by(|one, other| other.cmp(one));
    let lines = times.iter().map(|(time, name)| format!("{:.2} {name}\n", time.as_secs_f64()));
    if let Err(error) = fs::write(&file, lines.collect::<String>()) {
        eprintln!("{}: {error}", file.display());
    }
}
