//! Shared by the tests: servers, and the means to hurt them. Nothing in here uses the library.

pub mod child;
pub mod history;
pub mod java;
pub mod pgbouncer;
pub mod postgres_protocol;
pub mod postgres_server;
pub mod preload;
pub mod processes;
pub mod proxy;
pub mod redis_cluster;
pub mod redis_sentinel;
pub mod redis_server;
pub mod repeated;
pub mod resp;
pub mod stay;
pub mod stopwatch;
pub mod traces;
pub mod wall_clock;
pub mod zookeeper_ensemble;
pub mod zookeeper_protocol;
pub mod zookeeper_server;

use std::time::{Duration, Instant};

/// Time limit for a condition of a test; far longer than it ever takes.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until `condition` is met, at most for [`PATIENCE`]; returns its result.
///
/// # Panics
/// If it is not met in time; with the last error of `condition`.
pub async fn until<R, T: std::fmt::Debug>(what: &str, mut condition: impl FnMut() -> Result<R, T>) -> R {
    let end = Instant::now() + PATIENCE;
    let mut pause = Duration::from_micros(200);
    loop {
        let still = match condition() {
            Ok(result) => return result,
            Err(still) => still,
        };
        assert!(Instant::now() < end, "{what}: not after {PATIENCE:?}, still {still:?}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// Makes a trial again that the machine was too busy for, as its error explains, up to this number of trials.
pub async fn repeat(trials: usize, trial: impl AsyncFn() -> Result<(), String>) {
    let mut failures = Vec::new();
    while let Err(failure) = trial().await {
        failures.push(failure);
        assert!(failures.len() < trials, "each of {trials} trials failed: {failures:?}");
    }
}

/// Nanoseconds on the monotonic clock, which all processes of a machine share.
pub fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// A small generator of pseudo-random numbers (splitmix64, S. Vigna 2015), so that a seed repeats a run.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed in `LOCK_TEST_SEED`, or a fresh one.
    pub fn seed() -> u64 {
        match std::env::var("LOCK_TEST_SEED") {
            Ok(seed) => seed.parse().expect("LOCK_TEST_SEED is a number"),
            Err(_) => monotonic() ^ u64::from(std::process::id()) << 32,
        }
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
