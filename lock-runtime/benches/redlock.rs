//! Redlock on three and on five nodes against `rslock` and npm `redlock` on the same ones: uncontended, with one node
//! hanging, and one contended key. Then four clients that contend for one key while a minority hangs or is 200 ms away,
//! against themselves with all nodes well (`redlock_contended`).
//!
//! `cargo bench -p lock-runtime-benches --bench redlock -- [rounds [ms]]`; by default 7 rounds of 1,000 ms. The others
//! take one round trip for an acquisition, and have no fencing tokens. npm `redlock` takes part where `LOCK_TEST_REDLOCK`
//! names a folder `node_modules` that has it, as `tests/run interop` installs; it is in a process of its own.

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
    future::Future,
    pin::Pin,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use lock_runtime::LockManager;
use support::{
    Server,
    link::{self, Relay},
    median,
    program::Program,
    publish, ratios,
    targets::Target,
};

const TTL: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_mins(1);

/// A cycle of a contender: acquires the lock of this name, and releases it.
type Cycle = Arc<dyn Fn(String) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

fn main() {
    if !link::relayed() {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap()
            .block_on(measure());
    }
}

async fn measure() {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let rounds = numbers.next().unwrap_or(7);
    let length = Duration::from_millis(numbers.next().unwrap_or(1_000));
    contend(rounds, length).await;
    let (mut rows, mut targets) = (Vec::new(), Vec::new());
    for nodes in [3, 5] {
        let servers: Vec<Server> = (0..nodes).map(|_| Server::start_durable()).collect();
        let mut contenders = vec![ours(&servers).await, rslock(&servers)];
        contenders.extend(npm(&servers));
        for section in SECTIONS {
            let mut results = vec![(Vec::new(), Vec::new()); contenders.len()];
            // Each has connected to all nodes before one of them hangs.
            for contender in &mut contenders {
                contender.run(&section, Duration::from_millis(300)).await;
            }
            if section.hangs {
                servers[1].hang();
            }
            for round in 0..=rounds {
                for ((rates, p50), contender) in results.iter_mut().zip(&mut contenders) {
                    let measured = contender.run(&section, length).await;
                    // The first round warms up the virtual machine, and finds out that a node hangs.
                    if round > 0 {
                        rates.push(measured.0);
                        p50.push(measured.1);
                    }
                }
            }
            if section.hangs {
                servers[1].go_on();
            }
            let (rates, p50) = results[0].clone();
            for (contender, (their_rates, their_p50)) in contenders.iter().zip(&results) {
                let of = match contender {
                    Contender::Ours(_) => "1".into(),
                    _ => ratios(&rates, their_rates).to_string(),
                };
                rows.push(vec![
                    format!("{nodes}"),
                    section.name.into(),
                    contender.name().into(),
                    format!("{:.0}", median(their_rates)),
                    of,
                    format!("{:.0}", median(their_p50)),
                ]);
            }
            let name = format!("{nodes} nodes, {}", section.name);
            let (rslock_rates, rslock_p50) = &results[1];
            let of = ratios(&rates, rslock_rates);
            targets.push(Target::at_least(format!("{name}: cycles/s, of rslock"), of, section.least));
            if section.tasks == 1 && !section.hangs {
                let of = ratios(&p50, rslock_p50);
                targets.push(Target::at_most(format!("{name}: p50, of rslock"), of, 1.8));
            }
        }
    }
    let columns = ["nodes", "what", "who", "cycles/s", "ours of it [95 %]", "p50 µs"];
    publish("redlock", &columns, &rows, support::plot::NONE, &targets);
}

struct Section {
    name: &'static str,
    tasks: usize,
    /// Whether all tasks want the same lock.
    one_key: bool,
    /// Whether one node hangs.
    hangs: bool,
    /// The target, of `rslock`.
    least: f64,
}

const SECTIONS: [Section; 5] = [
    Section { name: "alone", tasks: 1, one_key: false, hangs: false, least: 0.65 },
    Section { name: "64 tasks", tasks: 64, one_key: false, hangs: false, least: 0.65 },
    Section { name: "one hangs, alone", tasks: 1, one_key: false, hangs: true, least: 10.0 },
    Section { name: "one hangs, 10 tasks", tasks: 10, one_key: false, hangs: true, least: 10.0 },
    Section { name: "one key, 32 tasks", tasks: 32, one_key: true, hangs: false, least: 20.0 },
];

enum Contender {
    Ours(Cycle),
    Rslock(Cycle),
    Npm(Program),
}

impl Contender {
    fn name(&self) -> &'static str {
        match self {
            Self::Ours(_) => "lock-runtime",
            Self::Rslock(_) => "rslock",
            Self::Npm(_) => "npm redlock",
        }
    }

    /// Returns the cycles a second, and the median of their times in µs.
    async fn run(&mut self, section: &Section, length: Duration) -> (f64, f64) {
        match self {
            Self::Ours(cycle) | Self::Rslock(cycle) => run(cycle, section, length).await,
            Self::Npm(program) => {
                let Section { tasks, one_key, .. } = section;
                let answer = program.ask(&format!("{tasks} {} {}", u8::from(*one_key), length.as_millis()));
                (answer[0], answer[1])
            }
        }
    }
}

/// Four clients with connections of their own want one lock all the time: with all nodes well, and with as many hanging
/// or 200 ms away as a majority can do without.
async fn contend(rounds: u64, length: Duration) {
    const CONDITIONS: [&str; 3] = ["all well", "a minority hangs", "a minority is 200 ms away"];
    let (mut rows, mut targets) = (Vec::new(), Vec::new());
    for nodes in [3, 5] {
        let servers: Vec<Server> = (0..nodes).map(|_| Server::start_durable()).collect();
        let (majority, minority) = servers.split_at(nodes / 2 + 1);
        let relays: Vec<_> =
            minority.iter().map(|server| Relay::start(server.port, Duration::from_millis(100))).collect();
        let ports = |of: &[Server]| of.iter().map(|server| server.port).collect::<Vec<_>>();
        let near = clients(&ports(&servers)).await;
        let far = [ports(majority), relays.iter().map(|relay| relay.port).collect()].concat();
        let far = clients(&far).await;
        let mut results = vec![(Vec::new(), Vec::new()); CONDITIONS.len()];
        for round in 0..=rounds {
            for (number, (rates, waits)) in results.iter_mut().enumerate() {
                let clients = if number == 2 { &far } else { &near };
                if number == 1 {
                    minority.iter().for_each(Server::hang);
                }
                // Finds out that nodes hang, or that they are back.
                contended(clients, Duration::from_millis(500)).await;
                let (rate, wait) = contended(clients, length).await;
                if number == 1 {
                    minority.iter().for_each(Server::go_on);
                }
                if round > 0 {
                    rates.push(rate);
                    waits.push(wait);
                }
            }
        }
        let (rates, waits) = results[0].clone();
        for (condition, (their_rates, their_waits)) in CONDITIONS.iter().zip(&results) {
            let (rate, wait) = (ratios(their_rates, &rates), ratios(their_waits, &waits));
            rows.push(vec![
                format!("{nodes}"),
                (*condition).into(),
                format!("{:.0}", median(their_rates)),
                rate.to_string(),
                format!("{:.0}", median(their_waits)),
                wait.to_string(),
            ]);
            if *condition != CONDITIONS[0] {
                let name = format!("{nodes} nodes, {condition}");
                targets.push(Target::at_least(format!("{name}: entries/s, of all well"), rate, 0.5));
                targets.push(Target::at_most(format!("{name}: longest wait, of all well"), wait, 2.0));
            }
        }
    }
    let columns =
        ["nodes", "what", "entries/s", "of all well [95 %]", "longest wait ms", "of all well [95 %]"];
    publish("redlock_contended", &columns, &rows, support::plot::NONE, &targets);
}

async fn clients(ports: &[u16]) -> Vec<LockManager> {
    let ports: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let url = format!("redlock://{}?durable=true", ports.join(","));
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(LockManager::connect(&url).await.unwrap().ttl(TTL).wait(PATIENCE));
    }
    clients
}

/// Returns the entries a second into sections of 1 ms, and the longest time that one was waited for, in ms.
async fn contended(clients: &[LockManager], length: Duration) -> (f64, f64) {
    let began = Instant::now();
    let tasks: Vec<_> = clients
        .iter()
        .map(|locks| {
            let lock = locks.lock("contended");
            tokio::spawn(async move {
                let (mut entries, mut longest) = (0, Duration::ZERO);
                while began.elapsed() < length {
                    let asked = Instant::now();
                    let guard = lock.acquire().await.unwrap();
                    longest = longest.max(asked.elapsed());
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    guard.release().await.unwrap();
                    entries += 1;
                }
                (entries, longest)
            })
        })
        .collect();
    let (mut entries, mut longest) = (0, Duration::ZERO);
    for task in tasks {
        let (its_entries, its_longest) = task.await.unwrap();
        (entries, longest) = (entries + its_entries, longest.max(its_longest));
    }
    (f64::from(entries) / began.elapsed().as_secs_f64(), longest.as_secs_f64() * 1e3)
}

async fn ours(servers: &[Server]) -> Contender {
    let ports: Vec<_> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
    let url = format!("redlock://{}?durable=true", ports.join(","));
    let locks = LockManager::connect(&url).await.unwrap().ttl(TTL).wait(PATIENCE);
    Contender::Ours(Arc::new(move |name| {
        let lock = locks.lock(name);
        Box::pin(async move { lock.acquire().await.unwrap().release().await.unwrap() })
    }))
}

fn rslock(servers: &[Server]) -> Contender {
    let locks = rslock::LockManager::new(servers.iter().map(Server::url).collect());
    Contender::Rslock(Arc::new(move |name| {
        let locks = locks.clone();
        Box::pin(async move {
            let name = format!("rslock:{name}");
            loop {
                if let Ok(lock) = locks.lock(name.as_bytes(), TTL).await {
                    locks.unlock(&lock).await;
                    return;
                }
            }
        })
    }))
}

fn npm(servers: &[Server]) -> Option<Contender> {
    let modules = std::env::var_os("LOCK_TEST_REDLOCK")?;
    let ports: Vec<_> = servers.iter().map(|server| server.port.to_string()).collect();
    Some(Contender::Npm(Program::start(
        Command::new("node").env("NODE_PATH", modules),
        "npm_redlock.js",
        &ports,
    )))
}

/// Returns the cycles a second, and the median of their times in µs.
async fn run(cycle: &Cycle, section: &Section, length: Duration) -> (f64, f64) {
    let (over, times) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let began = Instant::now();
    let tasks: Vec<_> = (0..section.tasks)
        .map(|task| {
            let (cycle, over, times) = (Arc::clone(cycle), Arc::clone(&over), Arc::clone(&times));
            let name = if section.one_key { "one".into() } else { format!("user:{task}") };
            tokio::spawn(async move {
                let mut own = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    cycle(name.clone()).await;
                    own.push(began.elapsed().as_secs_f64() * 1e6);
                }
                times.lock().unwrap().extend(own);
            })
        })
        .collect();
    tokio::time::sleep(length).await;
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    let took = began.elapsed().as_secs_f64();
    let times = times.lock().unwrap();
    (times.len() as f64 / took, median(&times))
}
