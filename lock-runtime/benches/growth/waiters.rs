//! Clients that wait for one key, each with a manager and a connection of its own.

use std::{
    thread,
    time::{Duration, Instant},
};

use lock_runtime::{LockGuard, LockManager};

use crate::{
    process::{Admin, Process, print, raise_open_files, run, wait_for_go},
    report::{Quantity, Report},
    support::Server,
};

const KEY: &str = "hot";
/// Upper bound on the waiters of one process.
const PER_PROCESS: u64 = 2_500;
/// How long the idle server, its idle clients, and its waiters are measured.
const LENGTH: Duration = Duration::from_secs(8);
/// Time for connections and queue to come to rest.
const REST: Duration = Duration::from_secs(2);
const CPU: &str = "waiters of one key: CPU per waiter and second, µs";
const POLL: &str = "waiters of one key: time of the script that refreshes a place, µs";
const CALLS: &str = "waiters of one key: calls per waiter and second";
const MEMORY: &str = "waiters of one key: memory of Redis per waiter, bytes";

const QUANTITIES: &[Quantity] = &[
    Quantity::fact("Redis, % of a core"),
    Quantity::fact("with the same clients idle, % of a core"),
    Quantity::cost("Redis CPU per waiter and second, µs", CPU, "server"),
    Quantity::cost("client CPU per waiter and second, µs", CPU, "clients"),
    Quantity::cost("script, µs per call", POLL, "refresh"),
    Quantity::cost("calls per waiter and second", CALLS, "calls"),
    Quantity::cost("Redis bytes per waiter", MEMORY, "all, with buffers of the connection"),
    Quantity::cost("of these its place, bytes", MEMORY, "place in the queue"),
    Quantity::fact("still in the queue"),
    Quantity::fact("holder's least time left, s"),
];

pub(crate) fn measure(sizes: &[u64]) {
    raise_open_files();
    let mut report = Report::new("waiters", "waiters", QUANTITIES);
    for size in sizes {
        report.add("", *size, &point(*size));
    }
    report.publish();
}

/// CPU of the server and of its clients while nothing is done to them, in seconds per second, and the least time that
/// the holder had left, in seconds.
fn shares(admin: &Admin, clients: &[Process], guard: &LockGuard) -> [f64; 3] {
    let used =
        || [admin.cpu().as_secs_f64(), clients.iter().map(|client| client.cpu().as_secs_f64()).sum::<f64>()];
    let (began, before) = (Instant::now(), used());
    let mut least = guard.remaining();
    while began.elapsed() < LENGTH {
        thread::sleep(Duration::from_millis(500));
        least = least.min(guard.remaining());
    }
    let (took, after) = (began.elapsed().as_secs_f64(), used());
    let [server, client] = [0, 1].map(|n| (after[n] - before[n]) / took);
    [server, client, least.as_secs_f64()]
}

fn point(size: u64) -> Vec<f64> {
    let server = Server::start();
    let mut admin = Admin::of(&server.url());
    // Each client has a connection for its requests and one for renewals.
    admin.allow_clients(2 * size + 100);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let locks = runtime.block_on(LockManager::connect(&server.url())).unwrap();
    let guard = runtime.block_on(locks.lock(KEY).acquire()).unwrap();
    // The first waiter makes the server compile what the others use.
    let other = runtime.block_on(LockManager::connect(&server.url())).unwrap();
    runtime.block_on(other.lock(KEY).wait(REST).acquire()).expect_err("it is held");
    runtime.block_on(other.shutdown());
    drop(other);
    thread::sleep(REST);
    let bare_memory = admin.memory();
    let [bare, ..] = shares(&admin, &[], &guard);

    let counts = (0..size.div_ceil(PER_PROCESS)).map(|n| PER_PROCESS.min(size - n * PER_PROCESS));
    let mut clients: Vec<Process> =
        counts.map(|count| Process::start("waiters", &[server.url(), count.to_string()])).collect();
    for client in &mut clients {
        client.numbers();
    }
    thread::sleep(REST);
    let [idle, ..] = shares(&admin, &[], &guard);

    for client in &mut clients {
        client.go();
    }
    let until = Instant::now() + Duration::from_secs(90);
    while admin.queue(KEY) < size as f64 {
        assert!(Instant::now() < until, "only {} of {size} wait", admin.queue(KEY));
        thread::sleep(Duration::from_millis(100));
    }
    thread::sleep(REST);
    let (waiting_memory, places) = (admin.memory(), admin.queue_memory(KEY));
    let scripts = admin.scripts();
    let [waiting, client, least] = shares(&admin, &clients, &guard);
    let (calls, micros) = admin.scripts();
    let (calls, micros) = (calls - scripts.0, micros - scripts.1);
    let still_in_queue = admin.queue(KEY);
    let size = size as f64;
    vec![
        waiting * 100.0,
        idle * 100.0,
        (waiting - bare) * 1e6 / size,
        client * 1e6 / size,
        micros / calls,
        calls / LENGTH.as_secs_f64() / size,
        (waiting_memory - bare_memory) / size,
        places / size,
        still_in_queue,
        least,
    ]
}

/// Connects managers, and then waits on each until it is killed.
pub(crate) fn child(arguments: &[String]) {
    let [url, count] = arguments else { panic!("arguments of a child") };
    let (url, count) = (url.clone(), count.parse::<usize>().unwrap());
    run(async move {
        let mut managers = Vec::with_capacity(count);
        for _ in 0..count {
            managers.push(LockManager::connect(&url).await.unwrap());
        }
        print(&[count as f64]);
        tokio::task::spawn_blocking(wait_for_go).await.unwrap();
        for locks in managers {
            tokio::spawn(async move {
                let ended = locks.lock(KEY).wait_forever().acquire().await;
                eprintln!("a waiter ended although the lock is held: {ended:?}");
                std::process::exit(1);
            });
        }
        std::future::pending::<()>().await;
    });
}
