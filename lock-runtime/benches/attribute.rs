//! The attribute beside the same call by hand: time, allocations and the size of the future.
//!
//! By hand is what the attribute stands for: a key made of text and a number, `acquire`, and the body raced against
//! the loss by `LockGuard::run`. Interleaved rounds on the store inside this process and on one private server, by one
//! task, so that nothing but the calls is measured. Judge the ratios by their spread.
//!
//! `cargo bench -p lock-runtime-benches --bench attribute [-- rounds [milliseconds]]`

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
use support::{Server, median, plot, publish, ratios};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const TTL: Duration = Duration::from_secs(30);
const CONTENDERS: [&str; 2] = ["by hand", "attribute"];
/// So many calls between two looks at the clock.
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

/// Nanoseconds a call, over `length`.
async fn round<F: Future<Output = Result<u64, LockError>>>(length: Duration, call: impl Fn(u64) -> F) -> f64 {
    let (start, mut calls) = (Instant::now(), 0_u32);
    while start.elapsed() < length {
        for id in 0..BATCH as u64 {
            call(id).await.unwrap();
        }
        calls += BATCH as u32;
    }
    start.elapsed().as_nanos() as f64 / f64::from(calls)
}

/// Allocations and bytes a call.
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

// One thread: what is counted is what the calls do, not where their wake-ups go.
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

    let mut rows = Vec::new();
    let mut chart = plot::Chart::new("nanoseconds a call (less is better)", plot::Scale::Logarithmic);
    for (store, locks) in &stores {
        let argument = [1; 64];
        let mut results: [Vec<f64>; 2] = Default::default();
        // The first round warms up and is not counted.
        for n in 0..=rounds {
            // In turns, so that neither always follows the other.
            let hand_first = n % 2 == 0;
            for first in [true, false] {
                let is_hand = first == hand_first;
                let took = if is_hand {
                    round(length, |id| by_hand(locks, id, argument)).await
                } else {
                    round(length, |id| attribute(locks, id, argument)).await
                };
                if n > 0 {
                    results[usize::from(!is_hand)].push(took);
                }
            }
        }
        let counts = [
            allocations(|id| by_hand(locks, id, argument)).await,
            allocations(|id| attribute(locks, id, argument)).await,
        ];
        let sizes = [size_of_val(&by_hand(locks, 1, argument)), size_of_val(&attribute(locks, 1, argument))];
        for (i, contender) in CONTENDERS.iter().enumerate() {
            chart.bar(store, contender, &results[i]);
            rows.push(vec![
                (*store).to_owned(),
                (*contender).to_owned(),
                format!("{:.0}", median(&results[i])),
                ratios(&results[i], &results[0]),
                format!("{:.2}", counts[i].0),
                format!("{:.0}", counts[i].1),
                sizes[i].to_string(),
            ]);
        }
    }
    println!("future of the body alone: {} B", size_of_val(&plain(&stores[0].1, 1, [1; 64])));
    publish(
        "attribute",
        &["store", "contender", "ns a call", "of by hand [least–most]", "allocations", "bytes", "future B"],
        &rows,
        &[chart],
    );
}
