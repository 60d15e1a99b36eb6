//! Cycles of one task, and hand-overs between two clients of ours, as rows of a table.

use std::time::{Duration, Instant};

use super::{median, ratios};

/// Length of a round of cycles.
pub(crate) const LENGTH: Duration = Duration::from_millis(1500);
/// Hand-overs of a round.
pub(crate) const HAND_OVERS: usize = 150;

/// The rounds of one contender: cycles per second, and the median time of a cycle in µs.
#[derive(Default)]
pub(crate) struct Cycles {
    pub(crate) rates: Vec<f64>,
    pub(crate) p50: Vec<f64>,
}

/// Measures several contenders in interleaved rounds, of which the first warms up.
pub(crate) async fn rounds<const N: usize>(
    count: usize,
    round: impl AsyncFn() -> [(f64, f64); N],
) -> [Cycles; N] {
    let mut all = [(); N].map(|()| Cycles::default());
    for number in 0..=count {
        let results = round().await;
        if number > 0 {
            for (cycles, (rate, p50)) in all.iter_mut().zip(results) {
                cycles.rates.push(rate);
                cycles.p50.push(p50);
            }
        }
    }
    all
}

pub(crate) fn row(who: &str, what: &str, cycles: &Cycles, base: &Cycles) -> Vec<String> {
    let rate = format!("{:.0}", median(&cycles.rates));
    let of_base = ratios(&cycles.rates, &base.rates).to_string();
    vec![who.into(), what.into(), rate, of_base, spread(&cycles.p50), "–".into()]
}

pub(crate) fn latency(who: &str, rounds: &[Vec<f64>], base: &[f64]) -> Vec<String> {
    let medians: Vec<f64> = rounds.iter().map(|micros| median(micros)).collect();
    let mut all = rounds.concat();
    all.sort_by(f64::total_cmp);
    let p99 = all[all.len() * 99 / 100];
    let of = ratios(&medians, base).to_string();
    vec![who.into(), "hand-over".into(), "–".into(), of, spread(&medians), format!("{p99:.0}")]
}

/// The median of the rounds, the least and the most.
fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    format!("{:.0} [{least:.0}–{most:.0}]", median(values))
}

/// Cycles per second, and the median time of one in µs.
pub(crate) async fn cycles(cycle: &impl AsyncFn()) -> (f64, f64) {
    let began = Instant::now();
    let mut took = Vec::new();
    while began.elapsed() < LENGTH {
        let before = Instant::now();
        cycle().await;
        took.push(before.elapsed().as_secs_f64() * 1e6);
    }
    (took.len() as f64 / began.elapsed().as_secs_f64(), median(&took))
}

/// Times from the release by one client to the entry of the other, which waits, in µs.
pub(crate) async fn hand_overs(two: &[lock_runtime::Lock; 2]) -> Vec<f64> {
    let mut took = Vec::new();
    let mut guard = two[0].acquire().await.unwrap();
    for number in 0..HAND_OVERS {
        let next = two[(number + 1) % 2].clone();
        let waiter = tokio::spawn(async move { (next.acquire().await.unwrap(), Instant::now()) });
        tokio::time::sleep(Duration::from_millis(5)).await;
        let released = Instant::now();
        let release = tokio::spawn(guard.release());
        let (next, entered) = waiter.await.unwrap();
        release.await.unwrap().unwrap();
        took.push(entered.duration_since(released).as_secs_f64() * 1e6);
        guard = next;
    }
    guard.release().await.unwrap();
    took
}
