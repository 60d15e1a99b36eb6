//! A round of one contender, and what it counted.

use std::{
    env, fs,
    process::{Command, Stdio},
    time::Duration,
};

use crate::{
    OURS, PROTOTYPE, Shape,
    child::place,
    support::{Server, link::Link},
};

/// Commands that drivers and this program send, and scripts do not call.
const ADMINISTRATION: [&str; 14] = [
    "auth",
    "client",
    "cluster",
    "command",
    "config",
    "flushall",
    "hello",
    "info",
    "ping",
    "psubscribe",
    "script",
    "select",
    "subscribe",
    "unsubscribe",
];

#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    seconds: f64,
    /// Entries of each waiter.
    counts: Vec<u64>,
    switches: u64,
    /// Commands of clients, commands that their scripts call, and hand-overs by scripts, as the server counts them.
    commands: u64,
    scripted: u64,
    hand_overs: u64,
    pub(crate) server_cpu: Duration,
    pub(crate) relay_cpu: Duration,
    pub(crate) overlaps: u64,
}

impl Outcome {
    pub(crate) fn entries(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn entries_per_second(&self) -> f64 {
        self.entries() as f64 / self.seconds
    }

    pub(crate) fn switches_per_second(&self) -> f64 {
        self.switches as f64 / self.seconds
    }

    pub(crate) fn commands_per_entry(&self) -> f64 {
        self.commands as f64 / self.entries().max(1) as f64
    }

    pub(crate) fn scripted_per_entry(&self) -> f64 {
        self.scripted as f64 / self.entries().max(1) as f64
    }

    pub(crate) fn hand_overs_per_second(&self) -> f64 {
        self.hand_overs as f64 / self.seconds
    }

    pub(crate) fn us_per_entry(&self, cpu: Duration) -> f64 {
        cpu.as_secs_f64() * 1e6 / self.entries().max(1) as f64
    }

    pub(crate) fn fewest(&self) -> f64 {
        self.counts.iter().copied().min().unwrap_or(0) as f64
    }

    pub(crate) fn most(&self) -> f64 {
        self.counts.iter().copied().max().unwrap_or(0) as f64
    }
}

/// Runs one round, in its own processes.
pub(crate) fn round(server: &Server, link: &Link, contender: &str, shape: Shape, ms: u64) -> Outcome {
    let mut admin = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let () = redis::cmd("FLUSHALL").query(&mut admin).unwrap();
    let () = redis::cmd("CONFIG").arg("RESETSTAT").query(&mut admin).unwrap();
    let (server_before, relay_before) = (server.cpu(), link.cpu());
    let Shape { processes, tasks, section } = shape;
    let children: Vec<_> = (0..processes)
        .map(|n| {
            Command::new(env::current_exe().unwrap())
                .arg("--child")
                .args([link.url(), contender])
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
    let _ = fs::remove_file(place(link.url()));
    let server_cpu = server.cpu().saturating_sub(server_before);
    let relay_cpu = link.cpu().saturating_sub(relay_before);
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut admin).unwrap();
    let calls: Vec<(&str, u64)> = stats.lines().filter_map(calls).collect();
    let calls_of = |names: &[&str]| {
        calls.iter().filter(|(name, _)| names.contains(name)).map(|(_, calls)| calls).sum::<u64>()
    };
    let commands = match contender {
        OURS | PROTOTYPE => calls_of(&["evalsha", "eval"]),
        "bare ring" => calls_of(&["publish"]),
        _ => calls_of(&["evalsha", "eval", "set"]),
    };
    let all: u64 = calls.iter().map(|(_, calls)| calls).sum();
    Outcome {
        seconds: ms as f64 / 1000.0,
        counts,
        switches,
        commands,
        scripted: all - commands - calls_of(&ADMINISTRATION),
        // Only hand-overs pop an entry from the head of a queue.
        hand_overs: if [OURS, PROTOTYPE].contains(&contender) { calls_of(&["lpop"]) } else { 0 },
        server_cpu,
        relay_cpu,
        overlaps,
    }
}

/// Reads a line like `cmdstat_client|setinfo:calls=2,usec=1,…`; a subcommand counts for its command.
fn calls(line: &str) -> Option<(&str, u64)> {
    let (name, figures) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
    Some((name.split('|').next()?, figures.split(',').next()?.parse().ok()?))
}
