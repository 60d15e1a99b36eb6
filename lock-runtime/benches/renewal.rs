//! Many held locks: the cost of renewing them.
//!
//! This library, which renews due locks in batches, against the usual way, one script call for each lock at a third
//! of its lease, on one private server. Both keep the same number of locks for the same time; at the end every lock
//! must still be held.
//!
//! `cargo bench -p lock-runtime-benches --bench renewal [-- seconds [locks…]]`: 20 s, with 10,000 and with 100,000
//! locks, by default. The targets are for 100,000.

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
    fs,
    time::{Duration, Instant},
};

use lock_runtime::{LockGuard, LockManager};
use redis::aio::MultiplexedConnection;
use support::{
    Interval, Server, own_cpu,
    plot::{Chart, Scale},
    publish,
    targets::Target,
};

const TTL: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let seconds = numbers.next().unwrap_or(20);
    let counts: Vec<u64> = numbers.collect();
    let counts = if counts.is_empty() { vec![10_000, 100_000] } else { counts };
    let (mut rows, mut targets) = (Vec::new(), Vec::new());
    let mut redis = Chart::new("Redis CPU to keep the locks, % of a core (less is better)", Scale::Linear);
    let mut client = Chart::new("client CPU to keep the locks, % of a core (less is better)", Scale::Linear);
    for count in counts {
        for contender in ["lock-runtime", "one call each"] {
            let server = Server::start();
            let kept = measure(&server, contender, count, Duration::from_secs(seconds)).await;
            let situation = format!("{count} locks, ttl {} s", TTL.as_secs());
            redis.bar(&situation, contender, &[kept.server_cpu]);
            client.bar(&situation, contender, &[kept.client_cpu]);
            rows.push(kept.row(contender, count));
            if contender == "lock-runtime" && count == 100_000 {
                targets.extend(kept.targets());
            }
        }
    }
    publish(
        "renewal",
        &[
            "held locks",
            "contender",
            "still held",
            "bytes per lock",
            "Redis CPU %",
            "client CPU %",
            "renewals due/s",
        ],
        &rows,
        &[redis, client],
        &targets,
    );
}

/// The locks of a contender after the time of the measurement, and what it cost to keep them.
struct Kept {
    held: u64,
    bytes_per_lock: u64,
    /// In % of a core.
    server_cpu: f64,
    client_cpu: f64,
}

impl Kept {
    fn row(&self, contender: &str, count: u64) -> Vec<String> {
        vec![
            count.to_string(),
            contender.to_owned(),
            self.held.to_string(),
            if contender == "lock-runtime" { self.bytes_per_lock.to_string() } else { "–".into() },
            format!("{:.1}", self.server_cpu),
            format!("{:.1}", self.client_cpu),
            format!("{:.0}", count as f64 / (TTL.as_secs_f64() / 3.0)),
        ]
    }

    fn targets(&self) -> [Target; 3] {
        let single = |value| Interval::of(&[value]);
        [
            Target::at_most("100,000 locks: % of a core of Redis", single(self.server_cpu), 3.0),
            Target::at_most("100,000 locks: % of a core of the client", single(self.client_cpu), 1.0),
            Target::at_most("100,000 locks: bytes per lock", single(self.bytes_per_lock as f64), 700.0),
        ]
    }
}

async fn measure(server: &Server, contender: &str, count: u64, length: Duration) -> Kept {
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let raw = redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let memory = resident();
    let mut guards = Vec::new();
    if contender == "lock-runtime" {
        guards = hold(&locks, count).await;
    } else {
        for from in (0..count).step_by(1000) {
            let mut pipe = redis::pipe();
            for n in from..(from + 1000).min(count) {
                pipe.cmd("SET").arg(n).arg("owner").arg("PX").arg(TTL.as_millis() as u64).ignore();
            }
            let () = pipe.query_async(&mut raw.clone()).await.unwrap();
        }
        tokio::spawn(renew_one_by_one(raw, count));
    }
    let bytes_per_lock = resident().saturating_sub(memory) / count;
    let (began, server_before, client_before) = (Instant::now(), server.cpu(), own_cpu());
    tokio::time::sleep(length).await;
    let took = began.elapsed().as_secs_f64();
    let share = |used: Duration| used.as_secs_f64() / took * 100.0;
    let (server_cpu, client_cpu) =
        (share(server.cpu().saturating_sub(server_before)), share(own_cpu().saturating_sub(client_before)));
    let held = if guards.is_empty() {
        let mut admin = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        redis::cmd("DBSIZE").query::<u64>(&mut admin).unwrap()
    } else {
        guards.iter().filter(|guard| guard.is_valid()).count() as u64
    };
    for guard in guards {
        guard.release().await.unwrap();
    }
    Kept { held, bytes_per_lock, server_cpu, client_cpu }
}

/// Acquires the locks spread over a third of the lease, as their renewals then are: the first are due after it.
async fn hold(locks: &LockManager, count: u64) -> Vec<LockGuard> {
    let began = tokio::time::Instant::now();
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move {
                let mut guards = Vec::new();
                for n in (task..count).step_by(64) {
                    tokio::time::sleep_until(began + (TTL / 3).mul_f64(n as f64 / count as f64)).await;
                    guards.push(locks.lock(format!("held:{n}")).ttl(TTL).acquire().await.unwrap());
                }
                guards
            })
        })
        .collect();
    let mut guards = Vec::new();
    for task in tasks {
        guards.extend(task.await.unwrap());
    }
    guards
}

/// A script call for each lock, spread over a third of the lease.
async fn renew_one_by_one(raw: MultiplexedConnection, count: u64) {
    let renew = redis::Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0",
    );
    let per_tick = (count / (TTL.as_millis() as u64 / 3 / 10)).max(1);
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    let mut next = 0;
    loop {
        ticks.tick().await;
        for _ in 0..per_tick {
            let (renew, mut raw, n) = (renew.clone(), raw.clone(), next);
            next = (next + 1) % count;
            tokio::spawn(async move {
                let mut call = renew.prepare_invoke();
                call.key(n).arg("owner").arg(TTL.as_millis() as u64);
                let _: Result<i64, _> = call.invoke_async(&mut raw).await;
            });
        }
    }
}

/// Memory of this process, in bytes.
fn resident() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}
