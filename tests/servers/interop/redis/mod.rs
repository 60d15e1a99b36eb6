//! Locks shared with redis-py, npm's redlock and Go's redsync on Redis, each with its defaults: they poll from time
//! to time, without a queue or notices. None pauses between a release and its next acquisition.

mod quorum;

use std::{
    env, fmt, fs,
    process::Command,
    time::{Duration, Instant},
};

use lock_runtime::{LockManager, backend::Redlock};

use super::{
    Contender, here, installed,
    journal::{Journal, note},
};
use crate::support::redis_server::RedisServer;

const MS: Duration = Duration::from_millis(1);
/// The name of the lock, and its key.
const NAME: &str = "shared";
const KEY: &str = "lock:shared";
/// The leases of clients whose entries are written to a journal.
const LEASE: Duration = Duration::from_secs(2);
/// Set in a process of ours: the servers' sockets, the counter, the number of tasks, and perhaps a journal.
const OURS: &str = "LOCK_TEST_INTEROP_OURS";
/// Seconds for which the contenders run; a minute or ten show more than the default.
const SECONDS: &str = "LOCK_TEST_INTEROP";

pub(super) fn seconds() -> u64 {
    env::var(SECONDS).map_or(20, |seconds| seconds.parse().unwrap())
}

/// A server, or the nodes of a quorum, and a file that counts the entries without any protection against lost updates.
struct Site {
    servers: Vec<RedisServer>,
    counter: std::path::PathBuf,
}

impl Site {
    fn new() -> Self {
        Self::of(1)
    }

    fn of(servers: usize) -> Self {
        let start = |_| if servers == 1 { RedisServer::start(&[]) } else { RedisServer::start_durable(&[]) };
        let servers: Vec<_> = (0..servers).map(start).collect();
        let counter = servers[0].socket().with_file_name("entries");
        fs::write(&counter, "0").unwrap();
        Self { servers, counter }
    }

    /// Separated by commas, as all contenders read them.
    fn sockets(&self) -> String {
        let sockets: Vec<_> = self.servers.iter().map(|server| server.socket().to_str().unwrap()).collect();
        sockets.join(",")
    }

    fn theirs(&self, mut command: Command) -> Contender {
        Contender::start({
            command.arg(self.sockets()).arg(KEY).arg(&self.counter);
            command
        })
    }

    /// The same with short leases, and with a journal.
    fn theirs_in(&self, journal: &Journal, mut command: Command) -> Contender {
        Contender::start({
            command.arg(self.sockets()).arg(KEY).arg(&self.counter);
            command.arg(LEASE.as_secs_f64().to_string()).arg(journal.path());
            command
        })
    }

    fn ours_in(&self, journal: &Journal) -> Contender {
        self.start_ours(1, &format!("\n{}", journal.path().display()))
    }

    fn ours(&self, tasks: usize) -> Contender {
        self.start_ours(tasks, "")
    }

    fn start_ours(&self, tasks: usize, further: &str) -> Contender {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--ignored", "--exact", "--nocapture", "interop::redis::one_of_ours"])
            .env(OURS, format!("{}\n{}\n{tasks}{further}", self.sockets(), self.counter.display()));
        Contender::start(command)
    }

    /// Lets all contenders enter for this time, each with its length of a section, counted from the first entry.
    /// Returns the waits of each. They end then.
    fn run(&self, contenders: &mut [(Contender, Duration)], length: Duration) -> Vec<Waits> {
        let before = self.entries();
        for (contender, section) in &mut *contenders {
            contender.tell(&format!("{} {}", section.as_secs_f64(), length.as_secs_f64()));
            while self.entries() == before {
                std::thread::sleep(MS);
            }
        }
        let waits: Vec<Waits> = contenders
            .iter()
            .map(|(contender, _)| {
                // A test program also prints that it has been running for long.
                loop {
                    if let Some(waits) = contender.answer(length + super::LONG).strip_prefix("waited ") {
                        return Waits::read(waits);
                    }
                }
            })
            .collect();
        let entries: usize = waits.iter().map(Waits::entries).sum();
        assert_eq!(self.entries() - before, entries, "updates were lost");
        waits
    }

    fn entries(&self) -> usize {
        // Empty while a contender is writing it.
        loop {
            if let Ok(entries) = fs::read_to_string(&self.counter).unwrap().trim().parse() {
                return entries;
            }
        }
    }
}

/// The waits of one contender before each of its entries.
pub(super) struct Waits(Vec<Duration>);

impl Waits {
    pub(super) fn read(line: &str) -> Self {
        let ms = |text: &str| Duration::from_secs_f64(text.parse::<f64>().unwrap() / 1000.0);
        Self(line.split_whitespace().map(ms).collect())
    }

    pub(super) fn all(of: &[Self]) -> Self {
        Self(of.iter().flat_map(|waits| waits.0.iter().copied()).collect())
    }

    /// Takes up to `count` of them out.
    fn take_first(&mut self, count: usize) -> Self {
        Self(self.0.drain(..count.min(self.0.len())).collect())
    }

    pub(super) fn entries(&self) -> usize {
        self.0.len()
    }

    fn median(&self) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    pub(super) fn longest(&self) -> Duration {
        self.0.iter().copied().max().unwrap_or_default()
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} entries, median {:.1?}, longest {:.1?}", self.entries(), self.median(), self.longest())
    }
}

fn redis_py() -> Command {
    let mut command = Command::new(installed("LOCK_TEST_REDIS_PY"));
    command.arg(here("redis/contender.py"));
    command
}

fn redlock() -> Command {
    let mut command = Command::new("node");
    // Node looks for packages next to the script by default.
    command.arg(here("redis/contender.js")).env("NODE_PATH", installed("LOCK_TEST_REDLOCK"));
    command
}

fn redsync() -> Command {
    Command::new(installed("LOCK_TEST_REDSYNC"))
}

/// Another process of this program.
fn rslock() -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    // To the harness, the arguments that follow are further names of tests, of which there are none.
    command.args(["--ignored", "--exact", "--nocapture", "interop::redis::one_of_rslock"]);
    command
}

/// Connects to one server, or to the nodes of a quorum.
async fn connect(sockets: &str) -> LockManager {
    let urls: Vec<_> = sockets.split(',').map(|socket| format!("redis+unix://{socket}")).collect();
    match &urls[..] {
        [url] => LockManager::connect(url).await.unwrap(),
        urls => {
            // The servers are new, and forget nothing.
            let locks = LockManager::new(Redlock::new(urls).unwrap().durable());
            locks.ping().await.unwrap();
            locks
        }
    }
}

/// Not a test: a process of ours, for the other tests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the other tests"]
async fn one_of_ours() {
    let Ok(order) = env::var(OURS) else { return };
    let order: Vec<&str> = order.lines().collect();
    let [sockets, counter, tasks, ref further @ ..] = order[..] else { panic!("{order:?}") };
    let journal = further.first().map(|journal| (*journal).to_owned());
    let locks = connect(sockets).await;
    let locks = if journal.is_some() { locks.ttl(LEASE) } else { locks };
    println!("\nready");
    let (section, end) = read_order();
    let tasks: Vec<_> = (0..tasks.parse().unwrap())
        .map(|_: usize| {
            let (locks, counter, journal) = (locks.clone(), counter.to_owned(), journal.clone());
            tokio::spawn(async move {
                let lock = locks.lock(NAME).wait(Duration::from_mins(30));
                let mut waits = Vec::new();
                loop {
                    let asked = Instant::now();
                    if asked >= end {
                        return waits;
                    }
                    let guard = lock.acquire().await.unwrap();
                    waits.push(asked.elapsed());
                    enter(&counter, journal.as_deref(), section).await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    let mut words = vec!["waited".to_owned()];
    for task in tasks {
        words.extend(task.await.unwrap().iter().map(|wait| format!("{:.3}", wait.as_secs_f64() * 1000.0)));
    }
    // Printed in one piece, because after a minute the harness may print a line of its own at any moment.
    println!("{}", words.join(" "));
}

/// A section: an entry is counted, and perhaps written down.
pub(super) async fn enter(counter: &str, journal: Option<&str>, section: Duration) {
    let note = |event| journal.iter().for_each(|journal| note(journal, event));
    note("in");
    // Empty after a process that was killed while it wrote.
    let value: usize = fs::read_to_string(counter).unwrap().trim().parse().unwrap_or(0);
    if !section.is_zero() {
        tokio::time::sleep(section).await;
    }
    fs::write(counter, (value + 1).to_string()).unwrap();
    note("out");
}

/// Reads the length of a section, and when to end.
pub(super) fn read_order() -> (Duration, Instant) {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let order: Vec<f64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let [section, length] = order[..] else { panic!("{order:?}") };
    (Duration::from_secs_f64(section), Instant::now() + Duration::from_secs_f64(length))
}

/// Not a test: a process with rslock, for the other tests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the other tests"]
async fn one_of_rslock() {
    let words: Vec<_> = env::args().skip_while(|word| !word.ends_with("one_of_rslock")).skip(1).collect();
    let [socket, key, counter, further @ ..] = &words[..] else { return };
    let (lease, journal) = (further.first().map_or(30.0, |lease| lease.parse().unwrap()), further.get(1));
    let locks = rslock::LockManager::new(vec![format!("redis+unix://{socket}")]);
    println!("\nready");
    let (section, end) = read_order();
    let mut words = vec!["waited".to_owned()];
    loop {
        let asked = Instant::now();
        if asked >= end {
            break;
        }
        let lock = loop {
            // It gives up after three attempts.
            if let Ok(lock) = locks.lock(key.as_bytes(), Duration::from_secs_f64(lease)).await {
                break lock;
            }
        };
        words.push(format!("{:.3}", asked.elapsed().as_secs_f64() * 1000.0));
        enter(counter, journal.map(String::as_str), section).await;
        locks.unlock(&lock).await;
    }
    println!("{}", words.join(" "));
}

/// Two processes of ours with two of theirs, which are there first: the time until ours have noticed them is another
/// test's matter.
fn two_and_two(name: &str, theirs: fn() -> Command) {
    let length = Duration::from_secs(seconds());
    for section in [MS, 20 * MS] {
        let site = Site::new();
        let mut contenders: Vec<_> =
            [site.theirs(theirs()), site.theirs(theirs()), site.ours(1), site.ours(1)]
                .into_iter()
                .map(|contender| (contender, section))
                .collect();
        let waits = site.run(&mut contenders, length);
        let (theirs, ours) = waits.split_at(2);
        for (of, waits) in [("ours", ours), (name, theirs)] {
            for waits in waits {
                println!("{section:?} sections, {length:?}, {of}: {waits}");
            }
        }
        let (ours, theirs) = (Waits::all(ours).longest(), Waits::all(theirs).longest());
        assert!(ours <= Duration::from_secs(3), "one of ours waited {ours:?}");
        assert!(theirs <= Duration::from_secs(10), "one of theirs waited {theirs:?}");
    }
}

#[test]
#[ignore = "needs what `tests/run interop` installs"]
fn two_of_ours_live_beside_two_of_redis_py() {
    two_and_two("redis-py", redis_py);
}

#[test]
#[ignore = "needs what `tests/run interop` installs"]
fn two_of_ours_live_beside_two_of_redlock() {
    two_and_two("redlock", redlock);
}

#[test]
#[ignore = "needs what `tests/run interop` installs"]
fn two_of_ours_live_beside_two_of_redsync() {
    two_and_two("redsync", redsync);
}

type Program = fn() -> Command;

const THEIRS: [(&str, Program); 4] =
    [("redis-py", redis_py), ("redlock", redlock), ("redsync", redsync), ("rslock", rslock)];

/// One process of each library, and two of ours.
#[test]
#[ignore = "needs what `tests/run interop` installs"]
fn ten_thousand_entries_with_each_library_lose_nothing() {
    const ENTRIES: usize = 10_000;
    // Ours may both come while their client is not inside. Then they leave the lock open to unknown clients until they
    // find it held by theirs: each ten seconds, where a client that asks at random moments may miss an opening.
    const NOTICED: usize = 10;
    for (name, theirs) in THEIRS {
        let site = Site::new();
        let began = Instant::now();
        let (mut unnoticed, mut all) = (Vec::new(), [Vec::new(), Vec::new(), Vec::new()]);
        while site.entries() < ENTRIES {
            let mut contenders =
                [site.theirs(theirs()), site.ours(1), site.ours(1)].map(|contender| (contender, MS));
            // It asserts that no update was lost.
            let mut waits = site.run(&mut contenders, Duration::from_secs(seconds()));
            unnoticed.push(waits[0].take_first(NOTICED));
            for (of, waits) in all.iter_mut().zip(waits) {
                of.push(waits);
            }
        }
        println!("{} entries with {name} in {:.1?}", site.entries(), began.elapsed());
        for (of, waits) in [name, "ours", "ours"].into_iter().zip(&all) {
            let waits = Waits::all(waits);
            println!("{of}: {waits}");
            assert!(waits.entries() > 10 && waits.longest() <= Duration::from_secs(10), "{of}");
        }
        let unnoticed = Waits::all(&unnoticed);
        println!("{name}, while ours may not have noticed it: {unnoticed}");
        assert!(unnoticed.longest() <= Duration::from_secs(30));
    }
}

/// Two processes of each library and two of ours, of which one is killed after the other.
#[test]
#[ignore = "needs what `tests/run interop` installs"]
fn killed_processes_of_each_library_hold_nothing_up() {
    let length = Duration::from_secs(3 * seconds());
    for (name, theirs) in THEIRS {
        let site = Site::new();
        let journal = Journal::new(site.counter.with_file_name("journal"));
        let start = |number: usize| {
            if number.is_multiple_of(2) { site.theirs_in(&journal, theirs()) } else { site.ours_in(&journal) }
        };
        let entries = journal.while_one_is_killed_after_the_other(4, length, start);
        println!("{name}, {length:?}: {entries:?}");
        // A killed holder's lease; a killed waiter's place in our queue lasts for 5 s.
        assert!(entries.longest_pause < LEASE + Duration::from_secs(5) && entries.count > 100, "{entries:?}");
    }
}

/// Eight processes of four tasks each keep the lock busy, in sections of 1 to 20 ms.
#[test]
#[ignore = "needs what `tests/run interop` installs"]
fn redis_py_gets_in_beside_eight_busy_processes() {
    let length = Duration::from_secs(seconds());
    let ours = |site: &Site| -> Vec<_> {
        (0_u32..8).map(|number| (site.ours(4), MS + number * 19 * MS / 7)).collect()
    };
    let (site, alone) = (Site::new(), length.min(Duration::from_mins(1)));
    let waits = Waits::all(&site.run(&mut ours(&site), alone));
    println!("ours alone for {alone:?}: {waits}");
    let site = Site::new();
    let mut contenders = ours(&site);
    contenders.push((site.theirs(redis_py()), 5 * MS));
    let waits = site.run(&mut contenders, length);
    let (theirs, ours) = waits.split_last().unwrap();
    println!("ours with redis-py for {length:?}: {}", Waits::all(ours));
    let (first, later) = theirs.0.split_first().expect("it never came in");
    let later = Waits(later.to_vec());
    println!("redis-py: first after {first:.1?}, then {later}");
    assert!(*first <= Duration::from_secs(30));
    assert!(later.median() <= Duration::from_secs(2) && later.longest() <= Duration::from_secs(10));
}
