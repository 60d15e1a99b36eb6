//! Cycles of acquire and release over distinct keys.

use std::{sync::Arc, time::Instant};

use lock_runtime::{LockManager, backend::Memory};

use crate::{
    process::{Admin, Process, own_cpu, print, resident, run},
    report::{Quantity, Report},
    support::Server,
};

const TASKS: u64 = 64;
const ROUNDS: u64 = 3;
const CPU: &str = "distinct keys: CPU per cycle of acquire and release, µs";

const QUANTITIES: &[Quantity] = &[
    Quantity::cost("µs per cycle", "distinct keys: time per cycle of acquire and release, 64 tasks, µs", ""),
    Quantity::cost("client CPU per cycle, µs", CPU, "client"),
    Quantity::cost("Redis CPU per cycle, µs", CPU, "server"),
    Quantity::fact("left in the client, KiB"),
    Quantity::fact("left in Redis, KiB"),
    Quantity::fact("locks left"),
];

pub(crate) fn measure(sizes: &[u64]) {
    let mut report = Report::new("keys", "distinct keys", QUANTITIES);
    for _ in 0..ROUNDS {
        for size in sizes {
            report.add(
                "memory",
                *size,
                &Process::start("keys", &["memory:".into(), size.to_string()]).numbers(),
            );
            let server = Server::start();
            report.add("Redis", *size, &Process::start("keys", &[server.url(), size.to_string()]).numbers());
        }
    }
    report.publish();
}

pub(crate) fn child(arguments: &[String]) {
    let [url, size] = arguments else { panic!("arguments of a child") };
    let (url, size) = (url.clone(), size.parse().unwrap());
    run(async move {
        let locks = LockManager::connect(&url).await.unwrap();
        let mut admin = (url != "memory:").then(|| Admin::of(&url));
        // Warms up on other keys.
        cycles(&locks, "warm", 1_000, 50_000).await;
        let least = if admin.is_some() { 200_000 } else { 2_000_000 };
        let count = size * u64::div_ceil(least, size);
        let used = |admin: &mut Option<Admin>| {
            let (memory, cpu) = admin
                .as_mut()
                .map_or((f64::NAN, f64::NAN), |admin| (admin.memory(), admin.cpu().as_secs_f64()));
            [resident(), memory, own_cpu().as_secs_f64(), cpu]
        };
        let (began, before) = (Instant::now(), used(&mut admin));
        cycles(&locks, "key", size, count).await;
        let (took, after) = (began.elapsed().as_secs_f64(), used(&mut admin));
        let grown = |n: usize| after[n] - before[n];
        let per_cycle = |seconds: f64| seconds * 1e6 / count as f64;
        let left = admin.as_mut().map_or_else(|| Memory::named("").len() as f64, Admin::keys);
        print(&[
            per_cycle(took),
            per_cycle(grown(2)),
            per_cycle(grown(3)),
            grown(0) / 1024.0,
            grown(1) / 1024.0,
            left,
        ]);
    });
}

/// Runs `count` cycles over `size` keys, again and again in the same order.
async fn cycles(locks: &LockManager, name: &'static str, size: u64, count: u64) {
    let locks = Arc::new(locks.clone());
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let locks = Arc::clone(&locks);
            tokio::spawn(async move {
                for n in (task..count).step_by(TASKS as usize) {
                    let guard = locks.lock(format!("{name}:{}", n % size)).acquire().await.unwrap();
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}
