//! Holds of many locks while primaries are replaced: by command, unnoticed by the old primary, and after its death.
//!
//! Each holder writes to a resource that refuses the tokens of earlier holders: when it enters, and when it leaves, without
//! asking whether the lock is still its own.

mod load;
pub mod servers;

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use libtest_mimic::{Failed, Trial};

pub use self::load::{ROLE, hold_locks};
use self::{
    load::{Section, Write},
    servers::{Failover, Servers, Way},
};
use crate::support::{
    child::Child,
    history::{self, Hold, Verdict},
    processes, redis_cluster, redis_sentinel, until,
};

const PROCESSES: usize = 3;
/// Number of locks of all servers.
const LOCKS: usize = 39;
/// Time between two failovers in which all goes well.
pub const CALM: Duration = Duration::from_millis(1_500);

/// Time without an answer after which the others take a server for dead.
const DOWN_AFTER: Duration = Duration::from_millis(800);

/// Servers, and the number of replicas of each primary that must have a lease.
struct Arrangement {
    name: &'static str,
    start: fn() -> Servers,
    /// Whether a short run is one of the tests for every day.
    is_brief: bool,
    /// Whether leases are lost so often that a check which sees no overlap in a minute is broken.
    is_control: bool,
}

const ARRANGEMENTS: &[Arrangement] = &[
    Arrangement { name: "sentinel", start: || set(2, 0), is_brief: false, is_control: true },
    Arrangement { name: "sentinel_one_of_one", start: || set(1, 1), is_brief: true, is_control: false },
    Arrangement { name: "sentinel_one_of_two", start: || set(2, 1), is_brief: false, is_control: false },
    Arrangement { name: "sentinel_two_of_two", start: || set(2, 2), is_brief: false, is_control: false },
    Arrangement { name: "cluster", start: || cluster(0), is_brief: false, is_control: false },
    Arrangement { name: "cluster_one_of_one", start: || cluster(1), is_brief: true, is_control: false },
];

fn set(replicas: usize, min_replicas: usize) -> Servers {
    let setup =
        redis_sentinel::Setup { replicas, down_after: DOWN_AFTER, ..redis_sentinel::Setup::default() };
    Servers::set(setup, min_replicas)
}

fn cluster(min_replicas: usize) -> Servers {
    let setup = redis_cluster::Setup {
        with_replicas: true,
        node_timeout: DOWN_AFTER,
        ..redis_cluster::Setup::default()
    };
    Servers::cluster(setup, min_replicas)
}

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for arrangement in ARRANGEMENTS {
        let name = format!("failovers::{}", arrangement.name);
        let long = format!("long::a_minute_of_{name}");
        if arrangement.is_brief {
            trials.push(Trial::test(name, || check(arrangement, &[Way::Killed], Duration::ZERO)));
        }
        let minute = Duration::from_mins(1);
        trials.push(Trial::test(long, move || check(arrangement, &Way::ALL, minute)).with_ignored_flag(true));
    }
    trials
}

/// Replaces primaries in these ways for this time, but at least once in each way, and checks what the holders saw.
fn check(arrangement: &Arrangement, ways: &[Way], length: Duration) -> Result<(), Failed> {
    let (failovers, load) = run(arrangement, ways, length);
    let found = Findings::of(&failovers, &load);
    println!("{}: {found:#?}", arrangement.name);
    let fail = |what: &str| Err(Failed::from(format!("{}: {what}: {found:#?}", arrangement.name)));
    if found.verdict.holds < 20 * failovers.len() {
        return fail("too few holds to show anything");
    }
    if found.verdict.duplicates + found.verdict.inversions > 0 {
        return fail("tokens do not rise");
    }
    if found.stale_accepted > 0 {
        return fail("the resource accepted a token after a larger one");
    }
    if found.unexplained > 0 {
        return fail("holders overlapped apart from failovers that may lose a lease");
    }
    if arrangement.is_control && found.verdict.overlaps == 0 {
        return fail("no holders overlapped, so the check sees nothing");
    }
    if found.failures.keys().any(|kind| kind != "Backend") {
        return fail("a failover is an outage, and nothing else");
    }
    Ok(())
}

/// What the processes saw.
#[derive(Default)]
struct Load {
    /// The holds of each lock, by its number.
    holds: BTreeMap<usize, Vec<Hold>>,
    writes: BTreeMap<usize, Vec<Write>>,
    /// The attempts that failed, by the kind of their error.
    failures: BTreeMap<String, usize>,
}

#[tokio::main(flavor = "current_thread")]
async fn run(arrangement: &Arrangement, ways: &[Way], length: Duration) -> (Vec<Failover>, Load) {
    let mut servers = (arrangement.start)();
    let folder = processes::folder().join(format!("failovers-{}", arrangement.name));
    fs::create_dir_all(&folder).unwrap();
    let (url, primaries) = (servers.url(), servers.primaries());
    let names = servers.names(LOCKS).join(",");
    let mut children: Vec<_> = (0..PROCESSES).map(|_| Child::start(ROLE)).collect();
    for child in &mut children {
        assert_eq!(child.ask(&format!("{url} {} {names} {primaries}", folder.display())).await, "connected");
    }
    let mut failovers = Vec::new();
    let end = Instant::now() + length;
    for turn in 0.. {
        if turn >= ways.len() && Instant::now() >= end {
            break;
        }
        tokio::time::sleep(CALM).await;
        failovers.push(servers.replace(ways[turn % ways.len()], turn));
    }
    tokio::time::sleep(CALM).await;
    for child in &mut children {
        child.tell("end");
    }
    let mut load = Load::default();
    for child in &mut children {
        loop {
            let answer = child.answer().await.expect("the process lives");
            if answer == "done" {
                break;
            }
            if let Some(kind) = answer.strip_prefix("failed ") {
                *load.failures.entry(kind.to_owned()).or_default() += 1;
                continue;
            }
            let Section { lock, hold, writes } = answer.parse().unwrap();
            load.holds.entry(lock).or_default().extend(hold);
            load.writes.entry(lock).or_default().extend(writes);
        }
    }
    until("nothing but counters of tokens is left, which expire", || {
        let keys = servers.keys();
        let is_counter = |(key, expires): &(String, bool)| key.ends_with(":fence") && *expires;
        if keys.iter().all(is_counter) { Ok(()) } else { Err(keys) }
    })
    .await;
    (failovers, load)
}

#[derive(Debug, Default)]
struct Findings {
    /// Number of failovers of each way.
    failovers: BTreeMap<Way, usize>,
    verdict: Verdict,
    /// The overlaps at failovers that may lose leases.
    overlaps_by_way: BTreeMap<Way, usize>,
    /// Overlaps of which neither hold met such a failover.
    unexplained: usize,
    /// The longest time for which two holders of one lock believed in it.
    longest_overlap: Duration,
    writes: usize,
    /// Writes after one with a larger token.
    stale_attempted: usize,
    stale_accepted: usize,
    /// The times in which no caller entered any lock of the primary that was replaced, and in which none entered its busy
    /// lock: a lease whose release was lost has to end first.
    outages: BTreeMap<Way, [Duration; 2]>,
    outages_of_busy: BTreeMap<Way, [Duration; 2]>,
    failures: BTreeMap<String, usize>,
}

impl Findings {
    fn of(failovers: &[Failover], load: &Load) -> Self {
        let mut found = Self { failures: load.failures.clone(), ..Self::default() };
        for failover in failovers {
            *found.failovers.entry(failover.way).or_default() += 1;
        }
        for (lock, holds) in &load.holds {
            let mut holds = holds.clone();
            let Verdict { holds: count, overlaps, duplicates, inversions } = history::judge(holds.clone());
            found.verdict.holds += count;
            found.verdict.overlaps += overlaps;
            found.verdict.duplicates += duplicates;
            found.verdict.inversions += inversions;
            for (earlier, later) in history::overlaps(&mut holds) {
                let explains = |failover: &&Failover| {
                    failover.may_lose
                        && failover.concerns(*lock)
                        && earlier.from <= failover.settled
                        && later.from >= failover.began
                };
                match failovers.iter().find(explains) {
                    Some(failover) => *found.overlaps_by_way.entry(failover.way).or_default() += 1,
                    None => found.unexplained += 1,
                }
                let length = Duration::from_nanos(earlier.until.min(later.until) - later.from);
                found.longest_overlap = found.longest_overlap.max(length);
            }
        }
        for writes in load.writes.values() {
            let mut writes = writes.clone();
            writes.sort_by_key(|write| write.at);
            found.writes += writes.len();
            let mut largest = 0;
            for write in writes {
                if write.token < largest {
                    found.stale_attempted += 1;
                    found.stale_accepted += usize::from(write.is_accepted);
                }
                largest = largest.max(write.token);
            }
        }
        found.outages =
            without_entry(failovers, load, |one, lock| one.concerns(lock) && lock != one.primary());
        found.outages_of_busy = without_entry(failovers, load, |one, lock| lock == one.primary());
        found
    }
}

/// For each way of a failover, the median and the longest of the times without an entry to these locks.
fn without_entry(
    failovers: &[Failover],
    load: &Load,
    counts: impl Fn(&Failover, usize) -> bool,
) -> BTreeMap<Way, [Duration; 2]> {
    let mut gaps: BTreeMap<Way, Vec<u64>> = BTreeMap::new();
    for failover in failovers {
        let holds =
            load.holds.iter().filter(|(lock, _)| counts(failover, **lock)).flat_map(|(_, holds)| holds);
        let mut entries: Vec<u64> = holds.map(|hold| hold.from).collect();
        entries.sort_unstable();
        let around =
            (entries.windows(2)).filter(|pair| pair[1] > failover.began && pair[0] < failover.settled);
        let gap = around.map(|pair| pair[1] - pair[0].max(failover.began)).max();
        gaps.entry(failover.way).or_default().extend(gap);
    }
    let summary = |mut gaps: Vec<u64>| {
        gaps.sort_unstable();
        [gaps[gaps.len() / 2], gaps[gaps.len() - 1]].map(Duration::from_nanos)
    };
    gaps.into_iter().filter(|(_, gaps)| !gaps.is_empty()).map(|(way, gaps)| (way, summary(gaps))).collect()
}
