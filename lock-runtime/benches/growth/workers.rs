//! Workers of tokio, with locks in memory.
//!
//! Every cycle takes two mutexes of its manager, those of the queues and of the schedule of renewals, and the one of
//! the store. Three shares of the same work show what each costs: one manager for all tasks, a manager with mutexes of
//! its own for each task on one store, and a store for each task.

use std::time::Instant;

use lock_runtime::{Limits, LockManager, backend::Memory};

use crate::{
    process::{Process, own_cpu, print},
    report::{Quantity, Report},
};

const TASKS: usize = 64;
const ROUNDS: usize = 7;
/// Cycles of each task: a number rather than a time, because a task with a free lock never waits.
const CYCLES: usize = 15_000;
const HOT: &str = "1 hot key";
const DISTINCT: &str = "distinct keys";
const MANAGERS: &str = "distinct keys, 64 managers";
const STORES: &str = "distinct keys, 64 stores";
const SERIES: [&str; 4] = [HOT, DISTINCT, MANAGERS, STORES];
const TIME: &str = "workers, 64 tasks in memory: time per cycle of acquire and release, µs";
const CPU: &str = "workers, 64 tasks in memory: CPU per cycle of acquire and release, µs";

const QUANTITIES: &[Quantity] = &[
    Quantity::fact("cycles/s"),
    Quantity::cost("µs per cycle", TIME, ""),
    Quantity::cost("CPU per cycle, µs", CPU, ""),
];

pub(crate) fn measure(sizes: &[u64]) {
    let mut report = Report::new("workers", "tokio workers", QUANTITIES);
    for _ in 0..ROUNDS {
        for size in sizes {
            for series in SERIES {
                let numbers = Process::start("workers", &[series.into(), size.to_string()]).numbers();
                report.add(series, *size, &numbers);
            }
        }
    }
    report.publish();
}

pub(crate) fn child(arguments: &[String]) {
    let [series, workers] = arguments else { panic!("arguments of a child") };
    let workers = workers.parse().unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap();
    let locks = LockManager::new(Memory::new());
    let shares: Vec<(LockManager, String)> = (0..TASKS)
        .map(|task| {
            let own = match series.as_str() {
                MANAGERS => locks.clone().with_limits(Limits::default()),
                STORES => LockManager::new(Memory::new()),
                _ => locks.clone(),
            };
            (own, if series == HOT { "hot".into() } else { format!("key:{task}") })
        })
        .collect();
    runtime.block_on(cycles(&shares, CYCLES / 10));
    let (began, before) = (Instant::now(), own_cpu());
    runtime.block_on(cycles(&shares, CYCLES));
    let (took, used) = (began.elapsed().as_secs_f64(), own_cpu().saturating_sub(before).as_secs_f64());
    let count = (TASKS * CYCLES) as f64;
    print(&[count / took, took * 1e6 / count, used * 1e6 / count]);
}

async fn cycles(shares: &[(LockManager, String)], count: usize) {
    let tasks: Vec<_> = shares
        .iter()
        .cloned()
        .map(|(locks, key)| {
            tokio::spawn(async move {
                for _ in 0..count {
                    let guard = locks.lock(key.as_str()).acquire().await.unwrap();
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}
