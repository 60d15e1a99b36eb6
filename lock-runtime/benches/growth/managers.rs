//! Managers of one process.

use std::time::Instant;

use lock_runtime::LockManager;

use crate::{
    process::{Admin, Process, own_cpu, print, resident, run},
    report::{Quantity, Report},
    support::Server,
};

const ROUNDS: u64 = 3;
const CONNECT: &str = "managers: to connect one, µs";
const MEMORY: &str = "managers: memory of each after its first cycle, bytes";
const CYCLE: &str = "managers used in turn by one task: a cycle of acquire and release, µs";

const QUANTITIES: &[Quantity] = &[
    Quantity::cost("µs to connect", CONNECT, "time"),
    Quantity::cost("client CPU to connect, µs", CONNECT, "CPU of the client"),
    Quantity::cost("Redis CPU to connect, µs", CONNECT, "CPU of the server"),
    Quantity::cost("client bytes per manager", MEMORY, "client"),
    Quantity::cost("Redis bytes per manager", MEMORY, "server"),
    Quantity::cost("µs per cycle", CYCLE, "time"),
    Quantity::cost("client CPU per cycle, µs", CYCLE, "CPU of the client"),
    Quantity::cost("Redis CPU per cycle, µs", CYCLE, "CPU of the server"),
];

pub(crate) fn measure(sizes: &[u64]) {
    let mut report = Report::new("managers", "managers", QUANTITIES);
    for _ in 0..ROUNDS {
        for size in sizes {
            report.add(
                "memory",
                *size,
                &Process::start("managers", &["memory:".into(), size.to_string()]).numbers(),
            );
            let server = Server::start();
            report.add(
                "Redis",
                *size,
                &Process::start("managers", &[server.url(), size.to_string()]).numbers(),
            );
        }
    }
    report.publish();
}

pub(crate) fn child(arguments: &[String]) {
    let [url, size] = arguments else { panic!("arguments of a child") };
    let (url, size) = (url.clone(), size.parse::<usize>().unwrap());
    run(async move {
        let mut admin = (url != "memory:").then(|| Admin::of(&url));
        let count = if admin.is_some() { 20_000 } else { 1_000_000 };
        // The first manager of a process starts the library's own thread, and loads the scripts.
        let first = LockManager::connect(&url).await.unwrap();
        cycles(std::slice::from_ref(&first), 1_000).await;
        let server_cpu =
            |admin: &Option<Admin>| admin.as_ref().map_or(f64::NAN, |admin| admin.cpu().as_secs_f64());
        let server_memory = |admin: &mut Option<Admin>| admin.as_mut().map_or(f64::NAN, Admin::memory);
        let memory = [resident(), server_memory(&mut admin)];

        let (began, cpu) = (Instant::now(), [own_cpu().as_secs_f64(), server_cpu(&admin)]);
        let mut managers = Vec::with_capacity(size);
        for _ in 0..size {
            managers.push(LockManager::connect(&url).await.unwrap());
        }
        let per_manager = |seconds: f64| seconds * 1e6 / size as f64;
        let connect = [
            per_manager(began.elapsed().as_secs_f64()),
            per_manager(own_cpu().as_secs_f64() - cpu[0]),
            per_manager(server_cpu(&admin) - cpu[1]),
        ];

        cycles(&managers, size).await;
        let memory =
            [(resident() - memory[0]) / size as f64, (server_memory(&mut admin) - memory[1]) / size as f64];

        let (began, cpu) = (Instant::now(), [own_cpu().as_secs_f64(), server_cpu(&admin)]);
        cycles(&managers, count).await;
        let per_cycle = |seconds: f64| seconds * 1e6 / count as f64;
        let cycle = [
            per_cycle(began.elapsed().as_secs_f64()),
            per_cycle(own_cpu().as_secs_f64() - cpu[0]),
            per_cycle(server_cpu(&admin) - cpu[1]),
        ];
        print(&[&connect[..], &memory, &cycle].concat());
    });
}

async fn cycles(managers: &[LockManager], count: usize) {
    for n in 0..count {
        let guard = managers[n % managers.len()].lock(format!("key:{}", n % 1_000)).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
}
