//! The attribute against the same call by hand: time, allocations and the size of the future.
//!
//! "By hand" is the code that the attribute stands for: a key made of text and a number, `acquire`, and the body
//! raced against the loss by `LockGuard::run`. Interleaved batches on the store inside this process and on one
//! private server, by one task, so that nothing but the calls is measured. Judge the ratios by their spread.
//!
//! `cargo bench -p lock-runtime-benches --bench attribute [-- rounds [milliseconds]]`: 15 rounds of 400 ms by default.

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
    future::Future,
    hint::black_box,
    time::{Duration, Instant},
};

use lock_runtime::{LockError, LockManager, backend::Memory, distributed_lock};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use support::{Server, median, plot, publish, ratios, targets::Target};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const TTL: Duration = Duration::from_secs(30);
const CONTENDERS: [&str; 2] = ["by hand", "attribute"];
const ARGUMENT: [u8; 64] = [1; 64];
/// Calls between two readings of the clock.
const BATCH: usize = 50;

async fn by_hand(locks: &LockManager, id: u64, argument: [u8; 64]) -> Result<u64, LockError> {
    let guard = locks.lock(format!("user:{id}")).ttl(TTL).acquire().await?;
    guard.run(async move { body(id, argument).await }).await?
}

#[distributed_lock(key = "user:<id>", ttl = "30s", manager = locks)]
async fn attribute(locks: &LockManager, id: u64, argument: [u8; 64]) -> Result<u64, LockError> {
    body(id, argument).await
}

/// Without a lock, for the size of the future.
async fn plain(_: &LockManager, id: u64, argument: [u8; 64]) -> Result<u64, LockError> {
    body(id, argument).await
}

async fn body(id: u64, argument: [u8; 64]) -> Result<u64, LockError> {
    std::future::ready(()).await;
    Ok(black_box(id) + u64::from(black_box(argument)[7]))
}

/// Nanoseconds per call, over `BATCH` calls.
async fn batch<F: Future<Output = Result<u64, LockError>>>(call: impl Fn(u64) -> F) -> f64 {
    let start = Instant::now();
    for id in 0..BATCH as u64 {
        call(id).await.unwrap();
    }
    start.elapsed().as_nanos() as f64 / BATCH as f64
}

/// The median batch of each contender, over `length`. They take turns batch by batch, and neither always follows the
/// other, so that other work on the machine affects both; the median leaves out interrupted batches.
async fn round(locks: &LockManager, length: Duration) -> [f64; 2] {
    let mut batches: [Vec<f64>; 2] = Default::default();
    let (start, mut hand_first) = (Instant::now(), true);
    while start.elapsed() < length {
        for turn in [hand_first, !hand_first] {
            if turn {
                batches[0].push(batch(|id| by_hand(locks, id, ARGUMENT)).await);
            } else {
                batches[1].push(batch(|id| attribute(locks, id, ARGUMENT)).await);
            }
        }
        hand_first = !hand_first;
    }
    batches.each_ref().map(|batches| median(batches))
}

/// Allocations and bytes per call.
async fn allocations<F: Future<Output = Result<u64, LockError>>>(call: impl Fn(u64) -> F) -> (f64, f64) {
    const CALLS: u64 = 2_000;
    for id in 0..CALLS {
        call(id).await.unwrap();
    }
    let region = Region::new(ALLOCATOR);
    for id in 0..CALLS {
        call(id).await.unwrap();
    }
    let change = region.change();
    (change.allocations as f64 / CALLS as f64, change.bytes_allocated as f64 / CALLS as f64)
}

// One thread, to measure the work of the calls and not the destination of their wake-ups.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let rounds = numbers.next().unwrap_or(15);
    let length = Duration::from_millis(numbers.next().unwrap_or(400));
    let server = Server::start();
    let stores = [
        ("memory", LockManager::new(Memory::new())),
        ("redis", LockManager::connect(&server.url()).await.unwrap()),
    ];

    let (mut rows, mut targets) = (Vec::new(), Vec::new());
    let mut chart = plot::Chart::new("nanoseconds a call (less is better)", plot::Scale::Logarithmic);
    for (store, locks) in &stores {
        let mut results: [Vec<f64>; 2] = Default::default();
        // The first round warms up and is not counted.
        round(locks, length).await;
        for _ in 0..rounds {
            for (results, took) in results.iter_mut().zip(round(locks, length).await) {
                results.push(took);
            }
        }
        let counts = [
            allocations(|id| by_hand(locks, id, ARGUMENT)).await,
            allocations(|id| attribute(locks, id, ARGUMENT)).await,
        ];
        let sizes = [size_of_val(&by_hand(locks, 1, ARGUMENT)), size_of_val(&attribute(locks, 1, ARGUMENT))];
        for (i, contender) in CONTENDERS.iter().enumerate() {
            chart.bar(store, contender, &results[i]);
            rows.push(vec![
                (*store).to_owned(),
                (*contender).to_owned(),
                format!("{:.0}", median(&results[i])),
                ratios(&results[i], &results[0]).to_string(),
                format!("{:.2}", counts[i].0),
                format!("{:.0}", counts[i].1),
                sizes[i].to_string(),
            ]);
        }
        targets.push(Target::at_most(
            format!("{store}: time of the attribute, of by hand"),
            ratios(&results[1], &results[0]),
            1.02,
        ));
    }
    println!("future of the body alone: {} B", size_of_val(&plain(&stores[0].1, 1, ARGUMENT)));
    publish(
        "attribute",
        &["store", "contender", "ns a call", "of by hand [95 %]", "allocations", "bytes", "future B"],
        &rows,
        &[chart],
        &targets,
    );
}
