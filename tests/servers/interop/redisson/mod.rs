//! Locks shared with Redisson on Redis, an old release and a new one, with its defaults but for a short watchdog.

use std::{
    collections::HashMap,
    env, fs,
    io::Write,
    process::Command,
    time::{Duration, Instant},
};

use lock_runtime::LockManager;

use super::{
    Contender, LONG,
    redis::{Waits, seconds},
};
use crate::support::{
    monotonic,
    proxy::{Proxy, Upstream},
    redis_server::RedisServer,
};

const NAME: &str = "shared";
/// The lease of a client that is alive.
const LEASE: Duration = Duration::from_secs(2);
/// Set in a process of ours: the URL, the counter, and the journal.
const OURS: &str = "LOCK_TEST_INTEROP_OURS_REDISSON";
const RELEASES: [&str; 2] = ["LOCK_TEST_REDISSON_OLD", "LOCK_TEST_REDISSON_NEW"];

/// A server, and two files: the counter of entries, and a journal of their beginnings and ends.
struct Site {
    server: RedisServer,
    /// Java's clients know no Unix sockets.
    proxy: Proxy,
    files: [std::path::PathBuf; 2],
}

impl Site {
    fn new() -> Self {
        let server = RedisServer::start(&[]);
        let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
        let files = ["entries", "journal"].map(|name| server.socket().with_file_name(name));
        fs::write(&files[0], "0").unwrap();
        fs::write(&files[1], "").unwrap();
        Self { server, proxy, files }
    }

    fn java(&self, release: &str) -> Contender {
        let mut command = super::java(release, "redisson/Contender.java");
        command
            .arg(format!("redis://{}", self.proxy.address()))
            .arg(NAME)
            .args(&self.files)
            .arg(LEASE.as_millis().to_string());
        Contender::start(command)
    }

    fn ours(&self) -> Contender {
        let url = format!("redisson+unix://{}", self.server.socket().display());
        let mut command = Command::new(env::current_exe().unwrap());
        let [counter, journal] = self.files.each_ref().map(|file| file.display().to_string());
        command
            .args(["--ignored", "--exact", "--nocapture", "interop::redisson::one_of_ours"])
            .env(OURS, format!("{url}\n{counter}\n{journal}"));
        Contender::start(command)
    }

    /// Asserts that no section began within another, except one that was killed; returns the number of sections.
    fn check(&self, killed: &[u64]) -> usize {
        let journal = fs::read_to_string(&self.files[1]).unwrap();
        let (mut inside, mut entries) = (None::<&str>, 0);
        for line in journal.lines() {
            let (id, event) = line.split_once(' ').unwrap();
            if event.starts_with("in ") {
                let before = inside.filter(|before| !killed.contains(&before.parse().unwrap()));
                assert_eq!(before, None, "{line} while another is inside");
                inside = Some(id);
                entries += 1;
            } else {
                assert_eq!(inside, Some(id), "{line}");
                inside = None;
            }
        }
        entries
    }
}

fn waits(contender: &Contender, within: Duration) -> Waits {
    // A test program also prints that it has been running for long.
    loop {
        if let Some(waits) = contender.answer(within).strip_prefix("waited ") {
            return Waits::read(waits);
        }
    }
}

/// Not a test: a process of ours, for the other tests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the other tests"]
async fn one_of_ours() {
    let Ok(order) = env::var(OURS) else { return };
    let [url, counter, journal] = order.lines().collect::<Vec<_>>()[..] else { panic!("{order:?}") };
    let locks = LockManager::connect(url).await.unwrap();
    println!("\nready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let order: Vec<f64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let [section, length] = order[..] else { panic!("{order:?}") };
    let section = Duration::from_secs_f64(section);
    let end = Instant::now() + Duration::from_secs_f64(length);
    let lock = locks.lock(NAME).ttl(LEASE).wait(Duration::from_mins(30));
    let again = lock.clone().reentrant(true);
    let note = |event: &str| {
        let mut journal = fs::File::options().append(true).open(journal).unwrap();
        let line = format!("{} {event} {}\n", std::process::id(), monotonic());
        journal.write_all(line.as_bytes()).unwrap();
    };
    let mut words = vec!["waited".to_owned()];
    loop {
        let asked = Instant::now();
        if asked >= end {
            break;
        }
        let guard = lock.acquire().await.unwrap();
        words.push(format!("{:.3}", asked.elapsed().as_secs_f64() * 1000.0));
        let entered = guard.run(async {
            let inner = again.acquire().await.unwrap();
            note("in");
            // Empty after a process that was killed while it wrote.
            let value: usize = fs::read_to_string(counter).unwrap().trim().parse().unwrap_or(0);
            if !section.is_zero() {
                tokio::time::sleep(section).await;
            }
            fs::write(counter, (value + 1).to_string()).unwrap();
            note("out");
            inner.release().await.unwrap();
        });
        entered.await.unwrap();
    }
    println!("{}", words.join(" "));
}

/// One process of theirs and two of ours, until there are 10,000 entries.
#[test]
#[ignore = "needs what `tests/run interop` installs"]
fn ten_thousand_entries_with_redisson_lose_nothing() {
    const ENTRIES: usize = 10_000;
    for release in RELEASES {
        let site = Site::new();
        let began = Instant::now();
        let length = Duration::from_secs(seconds());
        let mut all = [Vec::new(), Vec::new(), Vec::new()];
        let mut entries = 0;
        while entries < ENTRIES {
            let mut contenders = [site.java(release), site.ours(), site.ours()];
            for contender in &mut contenders {
                contender.tell(&format!("0 {}", length.as_secs_f64()));
            }
            for (of, contender) in all.iter_mut().zip(&contenders) {
                of.push(waits(contender, length + LONG));
            }
            entries = site.check(&[]);
            let counted: usize = fs::read_to_string(&site.files[0]).unwrap().parse().unwrap();
            assert_eq!(counted, entries, "updates were lost");
        }
        println!("{release}: {entries} entries in {:.1?}", began.elapsed());
        for (name, waits) in ["redisson", "ours", "ours"].into_iter().zip(&all) {
            let waits = Waits::all(waits);
            println!("{name}: {waits}");
            assert!(waits.entries() > ENTRIES / 100 && waits.longest() < Duration::from_secs(10), "{name}");
        }
    }
}

/// Every two seconds one of the processes is killed, wherever it is, and another one takes its place.
#[test]
#[ignore = "needs what `tests/run interop` installs"]
fn killed_processes_of_both_sides_hold_nothing_up() {
    let length = Duration::from_secs(3 * seconds());
    for release in RELEASES {
        let site = Site::new();
        let begin = |mut contender: Contender| {
            contender.tell("0.001 3600");
            contender
        };
        let start =
            |number: usize| begin(if number.is_multiple_of(2) { site.java(release) } else { site.ours() });
        let mut contenders: Vec<_> = (0..4).map(start).collect();
        let (since, mut killed) = (Instant::now(), Vec::new());
        for round in 0.. {
            if since.elapsed() >= length {
                break;
            }
            std::thread::sleep(Duration::from_secs(2));
            let victim = round % contenders.len();
            killed.push(u64::from(contenders[victim].id()));
            contenders[victim].kill();
            contenders[victim] = start(victim);
        }
        killed.extend(contenders.iter_mut().map(|contender| u64::from(contender.id())));
        contenders.iter_mut().for_each(Contender::kill);
        let entries = site.check(&killed);
        // The longest time without an entry: a killed holder's lease, and until somebody looks.
        let journal = fs::read_to_string(&site.files[1]).unwrap();
        let mut times = Vec::new();
        let mut by_process = HashMap::<&str, usize>::new();
        for line in journal.lines() {
            let words: Vec<_> = line.split(' ').collect();
            times.push(Duration::from_nanos(words[2].parse().unwrap()));
            *by_process.entry(words[0]).or_default() += 1;
        }
        let longest = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap();
        println!(
            "{release}: {entries} entries by {} processes in {length:?}, {} killed; {longest:.1?} without one at most",
            by_process.len(),
            killed.len()
        );
        assert!(longest < LEASE + Duration::from_secs(2), "nobody was in for {longest:?}");
        assert!(entries > 100, "{entries}");
    }
}

/// Two processes without a pause, of each pair: how often the lock changes its holder, and how long each waits.
#[test]
#[ignore = "needs what `tests/run interop` installs"]
fn how_fast_a_lock_changes_hands() {
    let length = Duration::from_secs(seconds().min(10));
    for release in RELEASES {
        let mut medians = Vec::new();
        for java in [0, 1, 2] {
            let site = Site::new();
            let mut contenders: Vec<_> =
                (0..2).map(|number| if number < java { site.java(release) } else { site.ours() }).collect();
            // The first seconds are those in which Java compiles.
            let warm = Duration::from_secs(3);
            for contender in &mut contenders {
                contender.tell(&format!("0 {}", (warm + length).as_secs_f64()));
            }
            let all: Vec<_> = contenders.iter().map(|of| waits(of, warm + length + LONG)).collect();
            let entries = site.check(&[]);
            let journal = fs::read_to_string(&site.files[1]).unwrap();
            let mut events: Vec<(&str, bool, u64)> = Vec::new();
            for line in journal.lines() {
                let words: Vec<_> = line.split(' ').collect();
                events.push((words[0], words[1] == "in", words[2].parse().unwrap()));
            }
            let begin = events[0].2 + u64::try_from(warm.as_nanos()).unwrap();
            let end = begin + u64::try_from(length.as_nanos()).unwrap();
            let mut changes: Vec<u64> = events
                .windows(2)
                .filter(|pair| !pair[0].1 && pair[1].1 && pair[0].0 != pair[1].0)
                .filter(|pair| (begin..end).contains(&pair[1].2))
                .map(|pair| pair[1].2.saturating_sub(pair[0].2))
                .collect();
            changes.sort_unstable();
            println!(
                "{release}, {java} of theirs and {} of ours: {entries} entries; {} changes/s; from the end of a section \
                 to the beginning of the other's: median {:.2?}, 99% {:.2?}; longest wait {:.1?}",
                2 - java,
                changes.len() / usize::try_from(length.as_secs()).unwrap(),
                Duration::from_nanos(changes[changes.len() / 2]),
                Duration::from_nanos(changes[changes.len() * 99 / 100]),
                Waits::all(&all).longest(),
            );
            medians.push(changes[changes.len() / 2]);
        }
        assert!(medians[0] <= medians[2], "ours are woken later than Redisson's: {medians:?} ns");
    }
}
