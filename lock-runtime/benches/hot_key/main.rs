//! One contended key: hand-overs per second, their cost to the server, and how evenly the waiters are served.
//!
//! Compares this library with `rslock` and `distributed-lock` (polling), a poller with the raw driver, and
//! Redisson's scheme (publish on release, all wake and race), each as processes × tasks, in interleaved rounds on
//! one private server. "Switches" are entries by another waiter than the one before; plain entries flatter pollers,
//! whose releaser enters again. With a section, overlaps are counted by a mark in a file, which each waiter leaves
//! on entry and checks when it goes. `no lock` shows that the check sees overlaps, and one long round has a hundred
//! thousand entries. `bare ring` is not a lock: processes publish to each other in turn, the upper bound for a lock
//! with messages on one machine.
//!
//! `cargo bench -p lock-runtime-benches --bench hot_key [-- rounds [milliseconds]]`

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::too_many_lines,
    reason = "a benchmark"
)]

mod contenders;
#[path = "../support/mod.rs"]
mod support;

use std::{
    env,
    fs::File,
    os::unix::fs::FileExt,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use contenders::Lock;
use support::{
    Server, median,
    plot::{Chart, Scale},
    publish,
};

const CONTENDERS: [&str; 5] =
    ["lock-runtime", "rslock", "distributed-lock", "raw polling", "publish and race"];
const SHAPES: [(usize, usize); 7] = [(1, 1), (1, 2), (1, 16), (1, 128), (1, 1000), (4, 1), (4, 32)];

fn main() {
    let arguments: Vec<String> = env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--child") {
        return child(&arguments[at + 1..]);
    }
    let mut numbers = arguments.iter().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let rounds = numbers.next().unwrap_or(3);
    let length = numbers.next().unwrap_or(1000);
    let server = Server::start();
    let mut speed = Chart::new("one key: switches to another waiter/s (more is better)", Scale::Logarithmic);
    let mut cost = Chart::new("one key: commands to Redis per entry (less is better)", Scale::Logarithmic);
    let (mut rows, mut pace) = (Vec::new(), f64::NAN);
    let shapes: Vec<_> = SHAPES.iter().map(|(p, t)| Shape::new(*p, *t, 0)).chain([SECTIONS]).collect();
    for shape in shapes {
        let contenders = shape.contenders();
        let mut results = vec![Vec::new(); contenders.len()];
        for _ in 0..rounds {
            for (contender, results) in contenders.iter().zip(&mut results) {
                results.push(round(&server, contender, shape, length));
            }
        }
        for (contender, results) in contenders.iter().zip(results) {
            let all = |what: fn(&Outcome) -> f64| results.iter().map(what).collect::<Vec<_>>();
            speed.bar(&shape.situation(), contender, &all(Outcome::switches_per_second));
            cost.bar(&shape.situation(), contender, &all(Outcome::commands_per_entry));
            rows.push(row(shape, contender, &results));
            if shape.section > 0 && *contender == "lock-runtime" {
                pace = median(&all(Outcome::entries_per_second));
            }
        }
    }
    // A hundred thousand entries in one round, if they come as fast as they came before.
    let overlaps = round(&server, "lock-runtime", SECTIONS, (120_000.0 / pace * 1000.0) as u64);
    assert_eq!(overlaps.overlaps, 0, "{overlaps:?}");
    rows.push(row(SECTIONS, "lock-runtime, one long round", &[overlaps]));
    publish(
        "hot_key",
        &[
            "processes × tasks",
            "section",
            "contender",
            "entries",
            "entries/s",
            "switches/s",
            "commands/entry",
            "hand-overs by the server/s",
            "Redis µs/entry",
            "fewest/most entries of a waiter",
            "overlaps",
        ],
        &rows,
        &[speed, cost],
    );
}

/// Number of contenders for the key, and the length of their sections.
#[derive(Clone, Copy)]
struct Shape {
    processes: usize,
    tasks: usize,
    /// In microseconds.
    section: u64,
}

/// At most ten thousand entries a second.
const SECTIONS: Shape = Shape::new(4, 8, 100);

impl Shape {
    const fn new(processes: usize, tasks: usize, section: u64) -> Self {
        Self { processes, tasks, section }
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
        let mut contenders = CONTENDERS.to_vec();
        if self.section > 0 {
            contenders.push("no lock");
        } else if self.processes > 1 && self.tasks == 1 {
            contenders.push("bare ring");
        }
        contenders
    }
}

fn row(shape: Shape, contender: &str, results: &[Outcome]) -> Vec<String> {
    let of = |what: fn(&Outcome) -> f64| median(&results.iter().map(what).collect::<Vec<_>>());
    vec![
        format!("{} × {}", shape.processes, shape.tasks),
        format!("{} µs", shape.section),
        contender.to_owned(),
        format!("{}", results.iter().map(Outcome::entries).sum::<u64>()),
        format!("{:.0}", of(Outcome::entries_per_second)),
        format!("{:.0}", of(Outcome::switches_per_second)),
        format!("{:.2}", of(Outcome::commands_per_entry)),
        format!("{:.0}", of(Outcome::hand_overs_per_second)),
        format!("{:.1}", of(Outcome::server_us_per_entry)),
        format!("{:.0}/{:.0}", of(Outcome::fewest), of(Outcome::most)),
        format!("{}", results.iter().map(|r| r.overlaps).sum::<u64>()),
    ]
}

#[derive(Clone, Debug)]
struct Outcome {
    seconds: f64,
    /// Entries of each waiter.
    counts: Vec<u64>,
    switches: u64,
    /// Commands of clients, then hand-overs by the scripts, as the server counts them.
    commands: u64,
    hand_overs: u64,
    server_cpu: Duration,
    overlaps: u64,
}

impl Outcome {
    fn entries(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn entries_per_second(&self) -> f64 {
        self.entries() as f64 / self.seconds
    }

    fn switches_per_second(&self) -> f64 {
        self.switches as f64 / self.seconds
    }

    fn commands_per_entry(&self) -> f64 {
        self.commands as f64 / self.entries().max(1) as f64
    }

    fn hand_overs_per_second(&self) -> f64 {
        self.hand_overs as f64 / self.seconds
    }

    fn server_us_per_entry(&self) -> f64 {
        self.server_cpu.as_secs_f64() * 1e6 / self.entries().max(1) as f64
    }

    fn fewest(&self) -> f64 {
        self.counts.iter().copied().min().unwrap_or(0) as f64
    }

    fn most(&self) -> f64 {
        self.counts.iter().copied().max().unwrap_or(0) as f64
    }
}

/// Runs one round, in its own processes.
fn round(server: &Server, contender: &str, shape: Shape, ms: u64) -> Outcome {
    let mut admin = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let () = redis::cmd("FLUSHALL").query(&mut admin).unwrap();
    let () = redis::cmd("CONFIG").arg("RESETSTAT").query(&mut admin).unwrap();
    let before = server.cpu();
    let Shape { processes, tasks, section } = shape;
    let children: Vec<_> = (0..processes)
        .map(|n| {
            Command::new(env::current_exe().unwrap())
                .arg("--child")
                .args([&server.url(), contender])
                .args(
                    [n as u64, processes as u64, tasks as u64, ms, section].map(|number| number.to_string()),
                )
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut counts = Vec::new();
    let (mut switches, mut overlaps) = (0, 0);
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{contender}: a child failed");
        let text = String::from_utf8(output.stdout).unwrap();
        let mut numbers = text.split_whitespace().map(|number| number.parse::<u64>().unwrap());
        switches += numbers.next().unwrap();
        overlaps += numbers.next().unwrap();
        counts.extend(numbers);
    }
    let server_cpu = server.cpu().saturating_sub(before);
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut admin).unwrap();
    let calls = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    // Commands called inside the scripts are not commands of a client.
    let commands = match contender {
        "lock-runtime" => calls("evalsha") + calls("eval"),
        "bare ring" => calls("publish"),
        _ => calls("evalsha") + calls("eval") + calls("set"),
    };
    // Only hand-overs pop an entry from the head of a queue.
    let hand_overs = if contender == "lock-runtime" { calls("lpop") } else { 0 };
    Outcome { seconds: ms as f64 / 1000.0, counts, switches, commands, hand_overs, server_cpu, overlaps }
}

/// The counters of a child.
#[derive(Default)]
struct Counts {
    switches: AtomicU64,
    overlaps: AtomicU64,
}

/// The last task that entered, and the task inside: in memory for one process, in a file for several.
///
/// Of two tasks inside at the same time, the first finds the other's mark, or none, when it leaves.
enum Place {
    Memory { last: AtomicU64, inside: AtomicU64 },
    File(File),
}

const NOBODY: u64 = 0;

impl Place {
    /// Returns the task that entered before.
    fn come(&self, me: u64) -> u64 {
        match self {
            Self::Memory { last, inside } => {
                inside.store(me, Ordering::SeqCst);
                last.swap(me, Ordering::SeqCst)
            }
            Self::File(file) => {
                let mut last = [0; 8];
                let _ = file.read_at(&mut last, 0);
                file.write_all_at(&[me.to_ne_bytes(), me.to_ne_bytes()].concat(), 0).unwrap();
                u64::from_ne_bytes(last)
            }
        }
    }

    /// Whether no other task has entered since.
    fn leave(&self, me: u64) -> bool {
        match self {
            Self::Memory { inside, .. } => inside.swap(NOBODY, Ordering::SeqCst) == me,
            Self::File(file) => {
                let mut inside = [0; 8];
                let _ = file.read_at(&mut inside, 8);
                file.write_all_at(&NOBODY.to_ne_bytes(), 8).unwrap();
                u64::from_ne_bytes(inside) == me
            }
        }
    }
}

/// One process of a round: prints switches, overlaps, and the entries of each of its tasks.
#[tokio::main]
async fn child(arguments: &[String]) {
    let [url, contender, process, processes, tasks, ms, section] = arguments else {
        panic!("arguments of a child")
    };
    let number = |text: &String| text.parse::<u64>().unwrap();
    let (process, tasks, section) = (number(process), number(tasks), Duration::from_micros(number(section)));
    let lock = Lock::open(contender, url, process, number(processes)).await;
    let counts = Arc::new(Counts::default());
    let place = Arc::new(if processes == "1" {
        Place::Memory { last: AtomicU64::new(NOBODY), inside: AtomicU64::new(NOBODY) }
    } else {
        let path = env::temp_dir().join(format!("hot-key-{}", url.rsplit(':').next().unwrap()));
        Place::File(File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap())
    });
    // All processes are up by then.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let end = Instant::now() + Duration::from_millis(number(ms));
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (lock, counts, place) = (lock.clone(), Arc::clone(&counts), Arc::clone(&place));
            let me = process * 1_000_000 + task + 1;
            tokio::spawn(async move {
                let mut entries = 0;
                while Instant::now() < end {
                    let Some(held) = lock.acquire(end).await else { break };
                    if Instant::now() >= end {
                        lock.release(held).await;
                        break;
                    }
                    // The cost of the check is part of the section, except for its last step.
                    let until = Instant::now() + section;
                    if place.come(me) != me {
                        counts.switches.fetch_add(1, Ordering::Relaxed);
                    }
                    if !section.is_zero() {
                        while Instant::now() < until {
                            std::hint::spin_loop();
                        }
                        counts.overlaps.fetch_add(u64::from(!place.leave(me)), Ordering::Relaxed);
                    }
                    entries += 1;
                    lock.release(held).await;
                }
                entries
            })
        })
        .collect();
    let mut entries: Vec<u64> = Vec::new();
    for task in running {
        entries.push(task.await.unwrap());
    }
    let counts = [counts.switches.load(Ordering::Relaxed), counts.overlaps.load(Ordering::Relaxed)];
    let line: Vec<String> = counts.iter().chain(&entries).map(ToString::to_string).collect();
    println!("{}", line.join(" "));
}
