//! Acquire and release of distinct keys without contention: the price of the guarantees.
//!
//! Compares the raw driver (`SET … NX PX`, then compare-and-delete by script), `rslock`, `distributed-lock` and this
//! library, in interleaved rounds on one private server; this library twice, with group commit and with a script for
//! each call, which give the same guarantees. Judge the ratios by their spread.
//!
//! `cargo bench -p lock-runtime-benches --bench uncontended [-- rounds [milliseconds [tasks…]]]`

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::too_many_lines,
    reason = "a benchmark"
)]

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lock_runtime::LockManager;
use support::{
    Round, Server, in_turn, median,
    peers::DistributedLock,
    plot::{Chart, Scale},
    publish, ratios, round,
};

const TTL: Duration = Duration::from_secs(30);
const SINGLE: &str = "lock-runtime, group_commit=never";
const CONTENDERS: [&str; 5] = ["raw driver", "rslock", "distributed-lock", "lock-runtime", SINGLE];

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let rounds = numbers.next().unwrap_or(41);
    let length = Duration::from_millis(numbers.next().unwrap_or(250));
    let tasks: Vec<usize> = numbers.map(|number| number as usize).collect();
    let server = Server::start();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let single = LockManager::connect(&format!("{}?group_commit=never", server.url())).await.unwrap();
    let raw = redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let delete = Arc::new(redis::Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end",
    ));
    let rslock = rslock::LockManager::new(vec![server.url()]);
    let distributed_lock = DistributedLock::open(&server.url()).await;
    let numbers = Arc::new(AtomicU64::new(0));

    let mut speed =
        Chart::new("acquire and release of distinct keys, cycles/s (more is better)", Scale::Linear);
    let mut cpu = Chart::new("CPU of client and Redis per cycle, µs (less is better)", Scale::Linear);
    let mut rows = Vec::new();
    for tasks in if tasks.is_empty() { vec![1, 64, 256] } else { tasks } {
        let mut results: [Vec<Round>; CONTENDERS.len()] = Default::default();
        // The first round warms up and is not counted.
        for n in 0..=rounds {
            for (contender, results) in in_turn(n, CONTENDERS.iter().zip(&mut results)) {
                let result = match *contender {
                    "raw driver" => {
                        let (raw, delete, numbers) = (raw.clone(), delete.clone(), numbers.clone());
                        round(&server, tasks, length, move |task, _| {
                            let (mut raw, delete) = (raw.clone(), delete.clone());
                            let token = numbers.fetch_add(1, Ordering::Relaxed);
                            async move {
                                let key = format!("raw:{task}");
                                let mut set = redis::cmd("SET");
                                set.arg(&key).arg(token).arg("NX").arg("PX").arg(30_000);
                                let () = set.query_async(&mut raw).await.unwrap();
                                let deleted: i64 =
                                    delete.key(&key).arg(token).invoke_async(&mut raw).await.unwrap();
                                assert_eq!(deleted, 1);
                            }
                        })
                    }
                    "rslock" => {
                        let rslock = rslock.clone();
                        round(&server, tasks, length, move |task, _| {
                            let rslock = rslock.clone();
                            async move {
                                let lock =
                                    rslock.lock(format!("rslock:{task}").as_bytes(), TTL).await.unwrap();
                                rslock.unlock(&lock).await;
                            }
                        })
                    }
                    "distributed-lock" => {
                        let locks = distributed_lock.clone();
                        round(&server, tasks, length, move |task, _| {
                            let locks = locks.clone();
                            async move {
                                let handle = locks.attempt(&format!("{task}")).await.expect("it is free");
                                DistributedLock::release(handle).await;
                            }
                        })
                    }
                    ours => {
                        let locks = if ours == SINGLE { single.clone() } else { locks.clone() };
                        round(&server, tasks, length, move |task, _| {
                            let locks = locks.clone();
                            async move {
                                let guard =
                                    locks.lock(format!("ours:{task}")).ttl(TTL).acquire().await.unwrap();
                                guard.release().await.unwrap();
                            }
                        })
                    }
                };
                if n > 0 {
                    results.push(result);
                }
            }
        }
        let throughput =
            results.each_ref().map(|rounds| rounds.iter().map(Round::per_second).collect::<Vec<_>>());
        for (i, contender) in CONTENDERS.iter().enumerate() {
            let mut percentile = |p| {
                let values: Vec<f64> =
                    results[i].iter_mut().map(|r| r.percentile(p).as_secs_f64() * 1e6).collect();
                format!("{:.0}", median(&values))
            };
            let (p50, p99) = (percentile(0.5), percentile(0.99));
            let situation = format!("{tasks} tasks");
            speed.bar(&situation, contender, &throughput[i]);
            let spent: Vec<f64> = results[i].iter().map(Round::cpu_per_cycle).collect();
            cpu.bar(&situation, contender, &spent);
            let cycles: usize = results[i].iter().map(|round| round.cycles).sum();
            let per_cycle = |cpu: fn(&Round) -> Duration| {
                let total: Duration = results[i].iter().map(cpu).sum();
                format!("{:.1}", total.as_secs_f64() * 1e6 / cycles as f64)
            };
            rows.push(vec![
                tasks.to_string(),
                (*contender).to_owned(),
                format!("{:.0}", median(&throughput[i])),
                ratios(&throughput[i], &throughput[0]),
                p50,
                p99,
                per_cycle(|round| round.server_cpu),
                per_cycle(|round| round.client_cpu),
            ]);
        }
    }
    publish(
        "uncontended",
        &[
            "tasks",
            "contender",
            "cycles/s",
            "of raw [95 %]",
            "p50 µs",
            "p99 µs",
            "Redis CPU µs",
            "client CPU µs",
        ],
        &rows,
        &[speed, cpu],
    );
}
