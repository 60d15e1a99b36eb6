//! Acquire and release of distinct keys without contention: the price of the guarantees.
//!
//! Compares the raw driver (`SET … NX PX`, then compare-and-delete by script), `rslock`, `distributed-lock` and this
//! library, in interleaved rounds on one private server; this library twice, with group commit and with a script for
//! each call, which give the same guarantees. Each contender has a client of one tokio worker, which leaves Redis a
//! core of its own on a machine of two, and a client of two. All are measured over a network of 0.5 ms, simulated by a
//! relay in a process of its own, and then on loopback. Judge the ratios by their interval.
//!
//! `cargo bench -p lock-runtime-benches --bench uncontended [-- [network|loopback] [rounds [milliseconds [tasks…]]]]`:
//! both links, 41 rounds of 250 ms, and 1, 64 and 256 tasks by default.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a benchmark"
)]

mod client;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use client::Client;
use support::{
    Round, Server, in_turn,
    link::{self, Link},
    median,
    plot::{Chart, Scale},
    publish, ratios,
    targets::Target,
};

const SINGLE: &str = "lock-runtime, single calls";
const CONTENDERS: [&str; 5] = ["raw driver", "rslock", "distributed-lock", "lock-runtime", SINGLE];
const RAW: usize = 0;
const OURS: usize = 3;
/// Workers of the client's runtime.
const WORKERS: [usize; 2] = [1, 2];

/// The rounds of each contender.
type Results = [Vec<Round>; CONTENDERS.len()];

fn main() {
    if link::relayed() {
        return;
    }
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let rounds = numbers.next().unwrap_or(41);
    let length = Duration::from_millis(numbers.next().unwrap_or(250));
    let tasks: Vec<usize> = numbers.map(|number| number as usize).collect();
    let tasks = if tasks.is_empty() { vec![1, 64, 256] } else { tasks };
    let server = Server::start();
    let (mut rows, mut targets) = (Vec::new(), Vec::new());
    for link in Link::chosen(&server) {
        let clients = WORKERS.map(|workers| Client::open(workers, &link));
        let chart = |what| Chart::new(&format!("{}: {what}", link.situation()), Scale::Linear);
        let mut speed = chart("acquire and release of distinct keys, cycles/s (more is better)");
        let mut cpu = chart("CPU of client and Redis per cycle, µs (less is better)");
        rows.push(echo(&link));
        for &tasks in &tasks {
            let results = measure(&server, &link, &clients, tasks, rounds, length);
            for (client, mut results) in clients.iter().zip(results) {
                let workers = plural(client.workers, "worker");
                let situation = format!("{}, {workers}", plural(tasks, "task"));
                for (contender, rounds) in CONTENDERS.iter().zip(&results) {
                    speed.bar(&situation, contender, &each(rounds, Round::per_second));
                    // A lone task costs ten times as much, and would hide the differences.
                    if tasks > 1 {
                        cpu.bar(&situation, contender, &each(rounds, Round::cpu_per_cycle));
                    }
                }
                targets.extend(declared(&link, client.workers, tasks, &mut results));
                rows.extend(table(&link, client.workers, tasks, &mut results));
            }
        }
        link.draw("uncontended", &[speed, cpu]);
    }
    publish(
        "uncontended",
        &[
            "link",
            "workers",
            "tasks",
            "contender",
            "cycles/s",
            "of raw [95 %]",
            "p50 µs",
            "p99 µs",
            "Redis CPU µs",
            "client CPU µs",
            "relay CPU µs",
        ],
        &rows,
        support::plot::NONE,
        &targets,
    );
}

/// Runs interleaved rounds of all contenders with each client.
fn measure(
    server: &Server,
    link: &Link,
    clients: &[Client; WORKERS.len()],
    tasks: usize,
    rounds: u64,
    length: Duration,
) -> [Results; WORKERS.len()] {
    let mut all: [Results; WORKERS.len()] = Default::default();
    // The first round warms up and is not counted.
    for n in 0..=rounds {
        let contenders = clients.iter().zip(&mut all).flat_map(|(client, results)| {
            CONTENDERS.iter().zip(results).map(move |(contender, results)| (client, contender, results))
        });
        for (client, contender, results) in in_turn(n, contenders) {
            let before = link.cpu();
            let mut result = client.round(contender, server, tasks, length);
            result.relay_cpu = link.cpu().saturating_sub(before);
            if n > 0 {
                results.push(result);
            }
        }
    }
    all
}

/// The targets for our rounds, against the raw driver's.
fn declared(link: &Link, workers: usize, tasks: usize, results: &mut Results) -> Vec<Target> {
    let mut p50 = |contender: usize| each_mut(&mut results[contender], |round| micros(round, 0.5));
    let lone = ratios(&p50(OURS), &p50(RAW));
    let of_raw = |what: fn(&Round) -> f64| ratios(&each(&results[OURS], what), &each(&results[RAW], what));
    let (speed, cpu) = (of_raw(Round::per_second), of_raw(Round::cpu_per_cycle));
    let situation = format!("{}, {}, {}", link.situation(), plural(workers, "worker"), plural(tasks, "task"));
    let throughput = |least| Target::at_least(format!("{situation}: cycles/s, of raw"), speed, least);
    let cost = || Target::at_most(format!("{situation}: CPU of client and Redis, of raw"), cpu, 1.0);
    let latency = |most| Target::at_most(format!("{situation}: p50, of raw"), lone, most);
    match (link.is_network(), workers, tasks) {
        (true, _, 1) => vec![latency(1.03)],
        (true, _, 64 | 256) => vec![throughput(1.0)],
        (false, _, 1) => vec![latency(1.10)],
        (false, 1, 64) => vec![throughput(0.55), cost()],
        (false, 1, 256) | (false, 2, 64) => vec![throughput(0.8), cost()],
        (false, 2, 256) => vec![throughput(1.0).lower_end_above(0.9), cost()],
        _ => Vec::new(),
    }
}

fn table(link: &Link, workers: usize, tasks: usize, results: &mut Results) -> Vec<Vec<String>> {
    let raw = each(&results[RAW], Round::per_second);
    let row = |(contender, rounds): (&&str, &mut Vec<Round>)| {
        let [p50, p99] = [0.5, 0.99].map(|p| median(&each_mut(rounds, |round| micros(round, p))));
        let cycles: usize = rounds.iter().map(|round| round.cycles).sum();
        let per_cycle = |cpu: fn(&Round) -> Duration| {
            let total: Duration = rounds.iter().map(cpu).sum();
            format!("{:.1}", total.as_secs_f64() * 1e6 / cycles as f64)
        };
        let throughput = each(rounds, Round::per_second);
        vec![
            link.situation().to_owned(),
            workers.to_string(),
            tasks.to_string(),
            (*contender).to_owned(),
            format!("{:.0}", median(&throughput)),
            ratios(&throughput, &raw).to_string(),
            format!("{p50:.0}"),
            format!("{p99:.0}"),
            per_cycle(|round| round.server_cpu),
            per_cycle(|round| round.client_cpu),
            if link.is_network() { per_cycle(|round| round.relay_cpu) } else { "–".into() },
        ]
    };
    CONTENDERS.iter().zip(results).map(row).collect()
}

/// Row of the bare round trip, which shows what the link adds.
fn echo(link: &Link) -> Vec<String> {
    let mut row = vec!["–".to_owned(); 11];
    let mut echoes = link.echo();
    row[0] = link.situation().into();
    row[3] = "one echo".into();
    row[6] = format!("{:.0}", micros(&mut echoes, 0.5));
    row[7] = format!("{:.0}", micros(&mut echoes, 0.99));
    row
}

fn each(rounds: &[Round], what: fn(&Round) -> f64) -> Vec<f64> {
    rounds.iter().map(what).collect()
}

fn each_mut(rounds: &mut [Round], what: impl FnMut(&mut Round) -> f64) -> Vec<f64> {
    rounds.iter_mut().map(what).collect()
}

fn micros(round: &mut Round, p: f64) -> f64 {
    round.percentile(p).as_secs_f64() * 1e6
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
