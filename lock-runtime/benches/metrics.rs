//! What the feature `metrics` costs: cycles without a recorder, and with that of `metrics-exporter-prometheus`, in the same
//! program in alternating rounds. Compare the row without a recorder with `attribute`, which is built without the feature.
//!
//! `cargo bench -p lock-runtime-benches --features metrics --bench metrics [-- rounds [milliseconds]]`: 15 rounds of 400 ms
//! by default.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a benchmark"
)]

mod support;

use std::{
    alloc::System,
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

use lock_runtime::{LockManager, backend::Memory, metrics::BUCKETS};
use metrics_exporter_prometheus::PrometheusBuilder;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use support::{Server, median, publish, ratios, targets::Target};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

async fn cycle(locks: &LockManager, task: usize) {
    let lock = locks.lock(format!("user:{task}")).class("user:<id>");
    lock.acquire().await.unwrap().release().await.unwrap();
}

/// Returns the cycles a second of this number of tasks, and the allocations of a cycle.
async fn run(locks: &LockManager, tasks: usize, length: Duration) -> (f64, f64) {
    let cycles = Rc::new(Cell::new(0_u64));
    let (began, region) = (Instant::now(), Region::new(ALLOCATOR));
    let local = tokio::task::LocalSet::new();
    for task in 0..tasks {
        let (locks, cycles) = (locks.clone(), Rc::clone(&cycles));
        local.spawn_local(async move {
            while began.elapsed() < length {
                for _ in 0..20 {
                    cycle(&locks, task).await;
                }
                cycles.set(cycles.get() + 20);
            }
        });
    }
    local.await;
    let cycles = cycles.get() as f64;
    (cycles / began.elapsed().as_secs_f64(), region.change().allocations as f64 / cycles)
}

// One thread, so that a recorder for this thread alone records what the calls do.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let rounds = numbers.next().unwrap_or(15);
    let length = Duration::from_millis(numbers.next().unwrap_or(400));
    let server = Server::start();
    let redis = LockManager::connect(&server.url()).await.unwrap();
    let memory = LockManager::new(Memory::new());
    let recorder = PrometheusBuilder::new().set_buckets(&BUCKETS).unwrap().build_recorder();
    let handle = recorder.handle();
    let (mut rows, mut targets) = (Vec::new(), Vec::new());
    for (store, locks, tasks) in [("memory", &memory, 1), ("redis", &redis, 1), ("redis", &redis, 64)] {
        let mut results: [Vec<f64>; 2] = Default::default();
        let mut allocations = [0.0; 2];
        for round in 0..=rounds {
            for (with, results) in results.iter_mut().enumerate() {
                let _recording = (with == 1).then(|| metrics::set_default_local_recorder(&recorder));
                let (rate, allocated) = run(locks, tasks, length).await;
                allocations[with] = allocated;
                if round > 0 {
                    results.push(rate);
                }
            }
            handle.run_upkeep();
        }
        for (who, (rates, allocated)) in
            ["no recorder", "a recorder"].iter().zip(results.iter().zip(allocations))
        {
            let rate = median(rates);
            rows.push(vec![
                store.into(),
                tasks.to_string(),
                (*who).into(),
                format!("{rate:.0}"),
                format!("{:.0}", 1e9 / rate),
                ratios(rates, &results[0]).to_string(),
                format!("{allocated:.2}"),
            ]);
        }
        if tasks == 64 {
            let of = ratios(&results[1], &results[0]);
            targets.push(Target::at_least("redis, 64 tasks: with a recorder, of none".to_owned(), of, 0.95));
        }
    }
    let columns = ["store", "tasks", "recorder", "cycles/s", "ns a cycle", "of none [95 %]", "allocations"];
    publish("metrics", &columns, &rows, support::plot::NONE, &targets);
}
