//! One contended key: hand-overs per second, their cost to the server, and how evenly the waiters are served.
//!
//! Compares this library with `rslock` and `distributed-lock` (polling), a poller with the raw driver, and
//! Redisson's scheme (publish on release, all wake and race), each as processes × tasks, in interleaved rounds on
//! one private server: over a network of 0.5 ms, simulated by a relay in a process of its own, and then on loopback.
//! "Switches" are entries by another waiter than the one before; plain entries flatter pollers, whose releaser enters
//! again. With a section, overlaps are counted by a mark in a file, which each waiter leaves on entry and checks when
//! it goes. `no lock` shows that the check sees overlaps, and one long round has a hundred thousand entries. `bare
//! ring` is not a lock: processes publish to each other in turn, the upper bound for a lock with messages on one
//! machine. `prototype of ours` is nothing but our scripts and the messages, the upper bound for our protocol. A target
//! that it misses is replaced by 0.95 of what it reaches.
//!
//! `cargo bench -p lock-runtime-benches --bench hot_key [-- [network|loopback] [rounds [milliseconds]] [shapes…]]`:
//! both links and 15 rounds of 1 s by default. A shape is `4x1`, four processes of one task each, or `4x8x100`, with
//! sections of 100 µs; shapes that are given are measured on each link.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a benchmark"
)]

mod child;
mod contenders;
mod prototype;
mod raw;
mod round;
#[path = "../support/mod.rs"]
mod support;

use std::env;

use round::{Outcome, round};
use support::{
    Interval, Server, in_turn,
    link::{self, Link},
    median,
    plot::{Chart, Scale},
    publish, ratios,
    targets::Target,
};

const OURS: &str = "lock-runtime";
const RACE: &str = "publish and race";
const PROTOTYPE: &str = "prototype of ours";
const PEERS: [&str; 4] = [RACE, "rslock", "distributed-lock", "raw polling"];

const ON_LOOPBACK: [Shape; 8] = [
    Shape::new(1, 1, 0),
    Shape::new(1, 2, 0),
    Shape::new(1, 16, 0),
    Shape::new(1, 128, 0),
    Shape::new(1, 1000, 0),
    Shape::new(4, 1, 0),
    Shape::new(4, 32, 0),
    SECTIONS,
];
const OVER_NETWORK: [Shape; 2] = [Shape::new(4, 1, 0), Shape::new(4, 32, 0)];
/// At most ten thousand entries a second.
const SECTIONS: Shape = Shape::new(4, 8, 100);

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--child") {
        return child::child(&arguments[at + 1..]);
    }
    if link::relayed() {
        return;
    }
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse::<u64>().ok());
    let rounds = numbers.next().unwrap_or(15);
    let length = numbers.next().unwrap_or(1000);
    let chosen: Vec<Shape> = arguments.iter().filter_map(|argument| Shape::parse(argument)).collect();
    let server = Server::start();
    let (mut rows, mut targets) = (Vec::new(), Vec::new());
    for link in Link::chosen(&server) {
        let chart = |what| Chart::new(&format!("{}, one key: {what}", link.situation()), Scale::Logarithmic);
        let mut speed = chart("switches to another waiter/s (more is better)");
        let mut cost = chart("commands to Redis per entry (less is better)");
        let shapes = match &chosen[..] {
            [] if link.is_network() => &OVER_NETWORK[..],
            [] => &ON_LOOPBACK,
            chosen => chosen,
        };
        for &shape in shapes {
            let results = measure(&server, &link, shape, rounds, length);
            for (contender, outcomes) in &results.0 {
                speed.bar(&shape.situation(), contender, &each(outcomes, Outcome::switches_per_second));
                cost.bar(&shape.situation(), contender, &each(outcomes, Outcome::commands_per_entry));
                rows.push(row(&link, shape, contender, outcomes, results.of(RACE)));
            }
            targets.extend(declared(&link, shape, &results));
            if shape == SECTIONS {
                // A hundred thousand entries in one round, if they come as fast as they came before.
                let pace = median(&each(results.of(OURS), Outcome::entries_per_second));
                let long = round(&server, &link, OURS, SECTIONS, (120_000.0 / pace * 1000.0) as u64);
                assert_eq!(long.overlaps, 0, "{long:?}");
                rows.push(row(&link, SECTIONS, "lock-runtime, one long round", &[long], &[]));
            }
        }
        link.draw("hot_key", &[speed, cost]);
    }
    publish(
        "hot_key",
        &[
            "link",
            "processes × tasks",
            "section",
            "contender",
            "entries",
            "entries/s",
            "switches/s",
            "switches of publish and race [95 %]",
            "commands/entry",
            "commands in scripts/entry",
            "hand-overs by the server/s",
            "Redis µs/entry",
            "relay µs/entry",
            "fewest/most entries of a waiter",
            "overlaps",
        ],
        &rows,
        support::plot::NONE,
        &targets,
    );
}

/// Number of contenders for the key, and the length of their sections.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    processes: usize,
    tasks: usize,
    /// In microseconds.
    section: u64,
}

impl Shape {
    const fn new(processes: usize, tasks: usize, section: u64) -> Self {
        Self { processes, tasks, section }
    }

    /// Returns `None` unless the text is like `4x1` or `4x8x100`.
    fn parse(text: &str) -> Option<Self> {
        let numbers: Vec<usize> = text.split('x').map(str::parse).collect::<Result<_, _>>().ok()?;
        match numbers[..] {
            [processes, tasks] => Some(Self::new(processes, tasks, 0)),
            [processes, tasks, section] => Some(Self::new(processes, tasks, section as u64)),
            _ => None,
        }
    }

    fn situation(self) -> String {
        let Self { processes, tasks, section } = self;
        if section == 0 {
            format!("{processes} × {tasks}")
        } else {
            format!("{processes} × {tasks}, sections of {section} µs")
        }
    }

    fn contenders(self) -> Vec<&'static str> {
        // Those that a target compares are next to each other: the machine's speed changes within seconds.
        let bounds: &[_] = match self {
            Self { section: 1.., .. } => &["no lock"],
            Self { processes: 2.., tasks: 1, .. } => &[PROTOTYPE, "bare ring"],
            _ => &[],
        };
        let (race, others) = PEERS.split_at(1);
        [&[OURS], race, bounds, others].concat()
    }
}

/// The rounds of each contender in one shape.
struct Results(Vec<(&'static str, Vec<Outcome>)>);

impl Results {
    fn of(&self, contender: &str) -> &[Outcome] {
        self.0.iter().find(|(name, _)| *name == contender).map_or(&[], |(_, outcomes)| outcomes)
    }
}

fn measure(server: &Server, link: &Link, shape: Shape, rounds: u64, length: u64) -> Results {
    let mut results: Vec<_> = shape.contenders().into_iter().map(|name| (name, Vec::new())).collect();
    for n in 0..rounds {
        for (contender, outcomes) in in_turn(n, results.iter_mut()) {
            outcomes.push(round(server, link, contender, shape, length));
        }
    }
    Results(results)
}

/// The targets for our rounds.
fn declared(link: &Link, shape: Shape, results: &Results) -> Vec<Target> {
    let name = |what: &str| format!("{}, {}: {what}", link.situation(), shape.situation());
    let ours = results.of(OURS);
    let switches = |contender| each(results.of(contender), Outcome::switches_per_second);
    let of_race = |required: f64| {
        let reached = ratios(&switches(PROTOTYPE), &switches(RACE));
        if reached.median < required {
            let what = format!("switches, of the prototype, which has {reached} of publish and race");
            return Target::at_least(name(&what), ratios(&switches(OURS), &switches(PROTOTYPE)), 0.95);
        }
        let of_race = ratios(&switches(OURS), &switches(RACE));
        Target::at_least(name("switches, of publish and race"), of_race, required).lower_end_above(1.0)
    };
    let Shape { processes, tasks, section } = shape;
    match (link.is_network(), processes, tasks, section) {
        (true, 4, 1, 0) => vec![of_race(1.5)],
        (false, 4, 1, 0) => {
            let in_scripts = Interval::of(&each(ours, Outcome::scripted_per_entry));
            vec![of_race(1.1), Target::at_most(name("commands in scripts per entry"), in_scripts, 11.0)]
        }
        (false, 4, 32, 0) => {
            let pace = |contender: &&'static str| median(&switches(contender));
            let best = PEERS.into_iter().max_by(|a, b| pace(a).total_cmp(&pace(b))).unwrap();
            let of_best = ratios(&switches(OURS), &switches(best));
            let evenness = Interval::of(&each(ours, |outcome| outcome.fewest() / outcome.most()));
            vec![
                Target::at_least(name(&format!("switches, of the best peer ({best})")), of_best, 20.0),
                Target::at_least(name("fewest/most entries of a waiter"), evenness, 0.8),
            ]
        }
        (false, 4, 8, 100) => {
            let of_ceiling = each(ours, |outcome| outcome.entries_per_second() / 10_000.0);
            vec![Target::at_least(name("entries, of 10,000/s"), Interval::of(&of_ceiling), 0.9)]
        }
        _ => Vec::new(),
    }
}

fn row(link: &Link, shape: Shape, contender: &str, outcomes: &[Outcome], race: &[Outcome]) -> Vec<String> {
    let of = |what: fn(&Outcome) -> f64| median(&each(outcomes, what));
    let switches = |outcomes| each(outcomes, Outcome::switches_per_second);
    let of_race = ratios(&switches(outcomes), &switches(race));
    let relay = of(|outcome| outcome.us_per_entry(outcome.relay_cpu));
    vec![
        link.situation().to_owned(),
        format!("{} × {}", shape.processes, shape.tasks),
        format!("{} µs", shape.section),
        contender.to_owned(),
        format!("{}", outcomes.iter().map(Outcome::entries).sum::<u64>()),
        format!("{:.0}", of(Outcome::entries_per_second)),
        format!("{:.0}", of(Outcome::switches_per_second)),
        if of_race.median.is_nan() { "–".into() } else { of_race.to_string() },
        format!("{:.2}", of(Outcome::commands_per_entry)),
        format!("{:.2}", of(Outcome::scripted_per_entry)),
        format!("{:.0}", of(Outcome::hand_overs_per_second)),
        format!("{:.1}", of(|outcome| outcome.us_per_entry(outcome.server_cpu))),
        if link.is_network() { format!("{relay:.1}") } else { "–".into() },
        format!("{:.0}/{:.0}", of(Outcome::fewest), of(Outcome::most)),
        format!("{}", outcomes.iter().map(|outcome| outcome.overlaps).sum::<u64>()),
    ]
}

fn each(outcomes: &[Outcome], what: impl Fn(&Outcome) -> f64) -> Vec<f64> {
    outcomes.iter().map(what).collect()
}
