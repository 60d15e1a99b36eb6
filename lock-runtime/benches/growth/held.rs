//! Locks held on Redis, renewed in the background.

use std::time::{Duration, Instant};

use lock_runtime::{LockGuard, LockManager};

use crate::{
    process::{Admin, Process, own_cpu, print, resident, run},
    report::{Quantity, Report},
    support::Server,
};

const TTL: Duration = Duration::from_secs(30);
const TASKS: usize = 256;
/// How often the time left of all locks is looked at.
const LOOK: Duration = Duration::from_secs(5);
const CPU: &str = "held locks, ttl 30 s: CPU per lock and second, µs";
const MEMORY: &str = "held locks: memory per lock, bytes";

const QUANTITIES: &[Quantity] = &[
    Quantity::fact("seconds held"),
    Quantity::fact("still held"),
    Quantity::fact("least time left, s"),
    Quantity::fact("Redis, % of a core"),
    Quantity::fact("client, % of a core"),
    Quantity::cost("Redis CPU per lock and second, µs", CPU, "server"),
    Quantity::cost("client CPU per lock and second, µs", CPU, "client"),
    Quantity::cost("Redis bytes per lock", MEMORY, "server"),
    Quantity::cost("client bytes per lock", MEMORY, "client"),
    Quantity::fact("locks left"),
];

pub(crate) fn measure(sizes: &[u64]) {
    let mut report = Report::new("held", "held locks", QUANTITIES);
    for size in sizes {
        let seconds = if *size < 1_000_000 { 20 } else { 40 };
        let server = Server::start();
        let arguments = [server.url(), size.to_string(), seconds.to_string()];
        report.add("", *size, &Process::start("held", &arguments).numbers());
    }
    report.publish();
}

pub(crate) fn child(arguments: &[String]) {
    let [url, size, seconds] = arguments else { panic!("arguments of a child") };
    let (url, size) = (url.clone(), size.parse::<usize>().unwrap());
    let length = Duration::from_secs(seconds.parse().unwrap());
    run(async move {
        let mut admin = Admin::of(&url);
        let locks = LockManager::connect(&url).await.unwrap();
        locks.lock("first").acquire().await.unwrap().release().await.unwrap();
        let memory = [resident(), admin.memory()];
        let guards = hold(&locks, size).await;
        let memory = [(resident() - memory[0]) / size as f64, (admin.memory() - memory[1]) / size as f64];

        let used = |admin: &Admin| [own_cpu().as_secs_f64(), admin.cpu().as_secs_f64()];
        let (began, mut before) = (Instant::now(), used(&admin));
        let mut least = Duration::MAX;
        while began.elapsed() < length {
            tokio::time::sleep(LOOK).await;
            // Its own cost does not count.
            let looked = own_cpu().as_secs_f64();
            least = least.min(guards.iter().flatten().map(LockGuard::remaining).min().unwrap());
            before[0] += own_cpu().as_secs_f64() - looked;
        }
        let (took, after) = (began.elapsed().as_secs_f64(), used(&admin));
        let [client, server] = [0, 1].map(|n| (after[n] - before[n]) / took);
        let held = guards.iter().flatten().filter(|guard| guard.is_valid()).count();

        release(guards).await;
        let size = size as f64;
        print(&[
            took,
            held as f64,
            least.as_secs_f64(),
            server * 100.0,
            client * 100.0,
            server * 1e6 / size,
            client * 1e6 / size,
            memory[1],
            memory[0],
            admin.keys(),
        ]);
    });
}

/// Acquires the locks spread over a third of the lease, or over longer if they are too many, as their renewals then
/// are: the first are due after it.
async fn hold(locks: &LockManager, size: usize) -> Vec<Vec<LockGuard>> {
    let began = tokio::time::Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move {
                let mut guards = Vec::with_capacity(size.div_ceil(TASKS));
                for n in (task..size).step_by(TASKS) {
                    tokio::time::sleep_until(began + (TTL / 3).mul_f64(n as f64 / size as f64)).await;
                    guards.push(locks.lock(format!("held:{n}")).ttl(TTL).acquire().await.unwrap());
                }
                guards
            })
        })
        .collect();
    let mut guards = Vec::with_capacity(TASKS);
    for task in tasks {
        guards.push(task.await.unwrap());
    }
    guards
}

async fn release(guards: Vec<Vec<LockGuard>>) {
    let release = |guards: Vec<LockGuard>| async {
        for guard in guards {
            guard.release().await.unwrap();
        }
    };
    let tasks: Vec<_> = guards.into_iter().map(|guards| tokio::spawn(release(guards))).collect();
    for task in tasks {
        task.await.unwrap();
    }
}
