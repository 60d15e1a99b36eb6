//! One key that many want: how often the lock changes hands, what that costs the server, and who is left behind.
//!
//! This library beside `rslock` and `distributed-lock` (polling), a poller with the raw driver, and Redisson's way (publish on release, all
//! wake and race), each as processes × tasks, in interleaved rounds on one private server. «Switches» are entries by
//! another waiter than the one before; plain entries flatter pollers, whose releaser comes in again. With a section,
//! overlaps are counted by a file that only one may have created at a time; `no lock` shows that the check sees them.
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

use distributed_lock_redis::RedisLockHandle;
use lock_runtime::LockManager;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, aio::MultiplexedConnection};
use support::{
    Server, median,
    peers::{self, DistributedLock},
    plot::{Chart, Scale},
    publish,
};
use tokio::sync::Notify;

const CONTENDERS: [&str; 5] =
    ["lock-runtime", "rslock", "distributed-lock", "raw polling", "publish and race"];
const SHAPES: [(usize, usize); 6] = [(1, 2), (1, 16), (1, 128), (1, 1000), (4, 1), (4, 32)];
const KEY: &str = "hot";
const TTL_MS: u64 = 30_000;
const DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) if ARGV[2] then redis.call('PUBLISH', \
     ARGV[2], '') end return 1 end return 0";

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
    let mut rows = Vec::new();
    for (processes, tasks, section) in SHAPES.iter().map(|(p, t)| (*p, *t, 0)).chain([(4, 8, 100)]) {
        let contenders: Vec<&str> =
            CONTENDERS.into_iter().chain((section > 0).then_some("no lock")).collect();
        let mut results = vec![Vec::new(); contenders.len()];
        for _ in 0..rounds {
            for (contender, results) in contenders.iter().zip(&mut results) {
                results.push(round(&server, contender, processes, tasks, length, section));
            }
        }
        for (contender, results) in contenders.iter().zip(results) {
            let all = |what: fn(&Outcome) -> f64| results.iter().map(what).collect::<Vec<_>>();
            let of = |what| median(&all(what));
            let situation = match section {
                0 => format!("{processes} × {tasks}"),
                section => format!("{processes} × {tasks}, sections of {section} µs"),
            };
            speed.bar(&situation, contender, &all(|r| r.switches_per_second));
            cost.bar(&situation, contender, &all(|r| r.commands_per_entry));
            rows.push(vec![
                format!("{processes} × {tasks}"),
                format!("{section} µs"),
                (*contender).to_owned(),
                format!("{:.0}", of(|r| r.entries_per_second)),
                format!("{:.0}", of(|r| r.switches_per_second)),
                format!("{:.2}", of(|r| r.commands_per_entry)),
                format!("{:.0}/{:.0}", of(|r| r.fewest), of(|r| r.most)),
                format!("{}", results.iter().map(|r| r.overlaps).sum::<u64>()),
            ]);
        }
    }
    publish(
        "hot_key",
        &[
            "processes × tasks",
            "section",
            "contender",
            "entries/s",
            "switches/s",
            "commands/entry",
            "fewest/most entries of a waiter",
            "overlaps",
        ],
        &rows,
        &[speed, cost],
    );
}

#[derive(Clone, Debug)]
struct Outcome {
    entries_per_second: f64,
    switches_per_second: f64,
    commands_per_entry: f64,
    fewest: f64,
    most: f64,
    overlaps: u64,
}

/// One round in processes of its own.
fn round(server: &Server, contender: &str, processes: usize, tasks: usize, ms: u64, section: u64) -> Outcome {
    let mut admin = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let () = redis::cmd("FLUSHALL").query(&mut admin).unwrap();
    let () = redis::cmd("CONFIG").arg("RESETSTAT").query(&mut admin).unwrap();
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
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut admin).unwrap();
    // What the scripts call inside is not a command of a client.
    let commands: u64 = stats
        .lines()
        .filter(|line| {
            // Of `set` those of clients: the scripts of this library set as well, and are counted themselves.
            ["evalsha", "eval", if contender == "lock-runtime" { "-" } else { "set" }]
                .iter()
                .any(|name| line.starts_with(&format!("cmdstat_{name}:")))
        })
        .filter_map(|line| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok())
        .sum();
    let entries: u64 = counts.iter().sum();
    let seconds = ms as f64 / 1000.0;
    Outcome {
        entries_per_second: entries as f64 / seconds,
        switches_per_second: switches as f64 / seconds,
        commands_per_entry: commands as f64 / entries.max(1) as f64,
        fewest: counts.iter().copied().min().unwrap_or(0) as f64,
        most: counts.iter().copied().max().unwrap_or(0) as f64,
        overlaps,
    }
}

/// What a child counts.
#[derive(Default)]
struct Counts {
    switches: AtomicU64,
    overlaps: AtomicU64,
}

/// Who came in last: in memory for one process, in a file for several.
enum Last {
    Memory(AtomicU64),
    File(File),
}

impl Last {
    fn replace(&self, me: u64) -> u64 {
        match self {
            Self::Memory(last) => last.swap(me, Ordering::Relaxed),
            Self::File(file) => {
                let mut last = [0; 8];
                let _ = file.read_at(&mut last, 0);
                file.write_all_at(&me.to_ne_bytes(), 0).unwrap();
                u64::from_ne_bytes(last)
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
    let lock = Lock::open(contender, url).await;
    let counts = Arc::new(Counts::default());
    let shared = env::temp_dir().join(format!("hot-key-{}", url.rsplit(':').next().unwrap()));
    let last = Arc::new(if processes == "1" {
        Last::Memory(AtomicU64::new(0))
    } else {
        let path = shared.with_extension("last");
        Last::File(File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap())
    });
    // All processes are up by then.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let end = Instant::now() + Duration::from_millis(number(ms));
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (lock, counts, shared) = (lock.clone(), Arc::clone(&counts), shared.clone());
            let last = Arc::clone(&last);
            let me = process * 1_000_000 + task + 1;
            tokio::spawn(async move {
                let mut entries = 0;
                while Instant::now() < end {
                    let Some(held) = lock.acquire(end).await else { break };
                    if last.replace(me) != me {
                        counts.switches.fetch_add(1, Ordering::Relaxed);
                    }
                    if !section.is_zero() {
                        let alone =
                            std::fs::OpenOptions::new().write(true).create_new(true).open(&shared).is_ok();
                        counts.overlaps.fetch_add(u64::from(!alone), Ordering::Relaxed);
                        let until = Instant::now() + section;
                        while Instant::now() < until {
                            std::hint::spin_loop();
                        }
                        if alone {
                            let _ = std::fs::remove_file(&shared);
                        }
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

#[derive(Clone)]
enum Lock {
    Ours(LockManager),
    Rslock(rslock::LockManager),
    DistributedLock(DistributedLock),
    Raw { connection: MultiplexedConnection, woken: Option<Arc<Notify>>, delete: Arc<redis::Script> },
    None,
}

enum Held {
    Ours(lock_runtime::LockGuard),
    Rslock(rslock::Lock),
    DistributedLock(RedisLockHandle),
    Raw(u128),
    Nothing,
}

impl Lock {
    async fn open(contender: &str, url: &str) -> Self {
        match contender {
            "lock-runtime" => {
                Self::Ours(LockManager::connect(url).await.unwrap().wait(Duration::from_mins(1)))
            }
            "rslock" => {
                let mut manager = rslock::LockManager::new(vec![url]);
                manager.set_retry(u32::MAX, Duration::from_millis(10));
                Self::Rslock(manager)
            }
            "distributed-lock" => Self::DistributedLock(DistributedLock::open(url).await),
            "no lock" => Self::None,
            raw => {
                let races = raw == "publish and race";
                let woken = Arc::new(Notify::new());
                let wake = Arc::clone(&woken);
                let settings = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(
                    move |push: PushInfo| {
                        if push.kind == PushKind::Message {
                            wake.notify_one();
                        }
                        Ok::<(), redis::aio::SendError>(())
                    },
                );
                let client = redis::Client::open(format!("{url}/?protocol=resp3")).unwrap();
                let mut connection =
                    client.get_multiplexed_async_connection_with_config(&settings).await.unwrap();
                if races {
                    connection.subscribe("released").await.unwrap();
                }
                let delete = Arc::new(redis::Script::new(DELETE));
                Self::Raw { connection, woken: races.then_some(woken), delete }
            }
        }
    }

    /// None when the time is over.
    async fn acquire(&self, end: Instant) -> Option<Held> {
        match self {
            Self::None => Some(Held::Nothing),
            Self::Ours(locks) => {
                let wait = end.saturating_duration_since(Instant::now()) + Duration::from_millis(100);
                let guard = locks.lock(KEY).wait(wait).acquire().await.ok()?;
                Some(Held::Ours(guard))
            }
            Self::Rslock(manager) => {
                let ttl = Duration::from_millis(TTL_MS);
                let lock = tokio::time::timeout_at(end.into(), manager.lock(KEY.as_bytes(), ttl))
                    .await
                    .ok()?
                    .ok()?;
                Some(Held::Rslock(lock))
            }
            Self::DistributedLock(locks) => {
                tokio::time::timeout_at(end.into(), locks.acquire(KEY)).await.ok().map(Held::DistributedLock)
            }
            Self::Raw { connection, woken, .. } => {
                let mut connection = connection.clone();
                let token: u128 = rand_token();
                loop {
                    let mut set = redis::cmd("SET");
                    set.arg(KEY).arg(token.to_string()).arg("NX").arg("PX").arg(TTL_MS);
                    let answer: Option<String> = set.query_async(&mut connection).await.unwrap();
                    if answer.is_some() {
                        return Some(Held::Raw(token));
                    }
                    if Instant::now() >= end {
                        return None;
                    }
                    match woken {
                        Some(woken) => {
                            let _ = tokio::time::timeout(Duration::from_millis(100), woken.notified()).await;
                        }
                        None => tokio::time::sleep(peers::pause()).await,
                    }
                }
            }
        }
    }

    async fn release(&self, held: Held) {
        match (self, held) {
            (Self::Rslock(manager), Held::Rslock(lock)) => manager.unlock(&lock).await,
            (_, Held::DistributedLock(handle)) => DistributedLock::release(handle).await,
            (Self::Raw { connection, woken, delete }, Held::Raw(token)) => {
                let mut call = delete.prepare_invoke();
                call.key(KEY).arg(token.to_string());
                if woken.is_some() {
                    call.arg("released");
                }
                let _: i64 = call.invoke_async(&mut connection.clone()).await.unwrap();
            }
            (_, Held::Ours(guard)) => guard.release().await.unwrap(),
            _ => {}
        }
    }
}

fn rand_token() -> u128 {
    lock_runtime::OwnerToken::random().expose()
}
