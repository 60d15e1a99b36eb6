//! Locks shared with Redisson on Redis, an old release and a new one, with its defaults but for a short watchdog.

use std::{
    env, fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use lock_runtime::LockManager;

use super::{
    Contender, LONG,
    journal::Journal,
    redis::{Waits, enter, read_order, seconds},
};
use crate::support::{
    proxy::{Proxy, Upstream},
    redis_server::RedisServer,
};

const NAME: &str = "shared";
/// The lease of a client that is alive.
const LEASE: Duration = Duration::from_secs(2);
/// Set in a process of ours: the URL, the counter, and the journal.
const OURS: &str = "LOCK_TEST_INTEROP_OURS_REDISSON";
const RELEASES: [&str; 2] = ["LOCK_TEST_REDISSON_OLD", "LOCK_TEST_REDISSON_NEW"];

/// A server, a counter of the entries in a file, and a journal.
struct Site {
    server: RedisServer,
    /// Java's clients know no Unix sockets.
    proxy: Proxy,
    counter: PathBuf,
    journal: Journal,
}

impl Site {
    fn new() -> Self {
        let server = RedisServer::start(&[]);
        let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
        let counter = server.socket().with_file_name("entries");
        fs::write(&counter, "0").unwrap();
        let journal = Journal::new(server.socket().with_file_name("journal"));
        Self { server, proxy, counter, journal }
    }

    fn java(&self, release: &str) -> Contender {
        let mut command = super::java(release, "redisson/Contender.java");
        command
            .arg(format!("redis://{}", self.proxy.address()))
            .arg(NAME)
            .args([&*self.counter, self.journal.path()])
            .arg(LEASE.as_millis().to_string());
        Contender::start(command)
    }

    fn ours(&self) -> Contender {
        let url = format!("redisson+unix://{}", self.server.socket().display());
        let mut command = Command::new(env::current_exe().unwrap());
        let (counter, journal) = (self.counter.display(), self.journal.path().display());
        command
            .args(["--ignored", "--exact", "--nocapture", "interop::redisson::one_of_ours"])
            .env(OURS, format!("{url}\n{counter}\n{journal}"));
        Contender::start(command)
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
    let (section, end) = read_order();
    let lock = locks.lock(NAME).ttl(LEASE).wait(Duration::from_mins(30));
    let again = lock.clone().reentrant(true);
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
            enter(counter, Some(journal), section).await;
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
            entries = site.journal.check(&[]).count;
            let counted: usize = fs::read_to_string(&site.counter).unwrap().parse().unwrap();
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
        let start = |number: usize| if number.is_multiple_of(2) { site.java(release) } else { site.ours() };
        let entries = site.journal.while_one_is_killed_after_the_other(4, length, start);
        println!("{release}, {length:?}: {entries:?}");
        // A killed holder's lease, and until a waiter looks.
        assert!(entries.longest_pause < LEASE + Duration::from_secs(2) && entries.count > 100, "{entries:?}");
    }
}

/// Both watchdogs.
#[test]
#[ignore = "needs what `tests/run interop` installs"]
fn sections_longer_than_a_lease_are_kept_on_both_sides() {
    for release in RELEASES {
        let site = Site::new();
        let mut contenders = [site.java(release), site.ours()];
        for contender in &mut contenders {
            contender.tell(&format!("{} 15", 2.5 * LEASE.as_secs_f64()));
        }
        let of_each = contenders.each_ref().map(|contender| waits(contender, LONG).entries());
        let entries = site.journal.check(&[]);
        println!("{release}: {of_each:?} entries of 5 s with leases of {LEASE:?}: {entries:?}");
        assert!(of_each.iter().all(|entries| *entries > 0), "{of_each:?}");
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
            let (entries, events) = (site.journal.check(&[]).count, site.journal.events());
            let begin = events[0].2 + warm;
            let mut changes: Vec<Duration> = events
                .windows(2)
                .filter(|pair| !pair[0].1 && pair[1].1 && pair[0].0 != pair[1].0)
                .filter(|pair| (begin..begin + length).contains(&pair[1].2))
                .map(|pair| pair[1].2.saturating_sub(pair[0].2))
                .collect();
            changes.sort_unstable();
            println!(
                "{release}, {java} of theirs and {} of ours: {entries} entries; {} changes/s; from the end of a section \
                 to the beginning of the other's: median {:.2?}, 99% {:.2?}; longest wait {:.1?}",
                2 - java,
                changes.len() / usize::try_from(length.as_secs()).unwrap(),
                changes[changes.len() / 2],
                changes[changes.len() * 99 / 100],
                Waits::all(&all).longest(),
            );
            medians.push(changes[changes.len() / 2]);
        }
        assert!(medians[0] <= medians[2], "ours are woken later than Redisson's: {medians:?}");
    }
}
