//! How cost grows with the number of keys, waiters, managers, held locks and workers.
//!
//! Each curve is a table, and a plot with logarithmic axes, of costs per unit: per cycle of acquire and release, per
//! waiter, per manager, per lock. Its *exponent* is the slope of the line of least squares through log(cost) over
//! log(size): about 0 if the cost of a unit does not depend on the number of units. Each point is measured in a process
//! of its own, on a server of its own, so that memory that an earlier point used does not count.
//!
//! * `keys`: cycles over distinct keys, in memory and with Redis, and the memory left behind.
//! * `waiters`: clients that wait for one key on Redis, each with a connection of its own.
//! * `managers`: managers of one process: to connect them, and to use them in turn.
//! * `held`: locks held on Redis with a ttl of 30 s.
//! * `workers`: workers of tokio, with 64 tasks on locks in memory.
//!
//! `cargo bench -p lock-runtime-benches --bench growth [-- curve… [largest size]]`

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a benchmark"
)]

#[path = "growth/held.rs"]
mod held;
#[path = "growth/keys.rs"]
mod keys;
#[path = "growth/managers.rs"]
mod managers;
#[path = "growth/process.rs"]
mod process;
#[path = "growth/report.rs"]
mod report;
mod support;
#[path = "growth/waiters.rs"]
mod waiters;
#[path = "growth/workers.rs"]
mod workers;

use std::env;

struct Curve {
    name: &'static str,
    sizes: &'static [u64],
    /// Measures the sizes and publishes the result.
    measure: fn(&[u64]),
    /// What a process of its own does for the curve.
    child: fn(&[String]),
}

const CURVES: [Curve; 5] = [
    Curve {
        name: "keys",
        sizes: &[1_000, 10_000, 100_000, 1_000_000],
        measure: keys::measure,
        child: keys::child,
    },
    Curve {
        name: "waiters",
        sizes: &[1, 10, 100, 1_000, 10_000],
        measure: waiters::measure,
        child: waiters::child,
    },
    Curve {
        name: "managers",
        sizes: &[1, 10, 100, 1_000],
        measure: managers::measure,
        child: managers::child,
    },
    Curve { name: "held", sizes: &[10_000, 100_000, 1_000_000], measure: held::measure, child: held::child },
    Curve { name: "workers", sizes: &[1, 2, 4, 8], measure: workers::measure, child: workers::child },
];

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let curve = |name: &str| {
        CURVES.iter().find(|curve| curve.name == name).unwrap_or_else(|| panic!("unknown curve: {name}"))
    };
    if let [flag, name, rest @ ..] = &arguments[..]
        && flag == process::FLAG
    {
        return (curve(name).child)(rest);
    }
    let mut largest = u64::MAX;
    let mut chosen: Vec<&Curve> = Vec::new();
    // Cargo adds flags of its own.
    for argument in arguments.iter().filter(|argument| !argument.starts_with("--")) {
        match argument.parse() {
            Ok(size) => largest = size,
            Err(_) => chosen.push(curve(argument)),
        }
    }
    if chosen.is_empty() {
        chosen.extend(&CURVES);
    }
    for curve in chosen {
        let sizes: Vec<u64> = curve.sizes.iter().copied().filter(|size| *size <= largest).collect();
        if sizes.is_empty() {
            println!("{}: no size up to {largest}", curve.name);
        } else {
            (curve.measure)(&sizes);
        }
    }
}
