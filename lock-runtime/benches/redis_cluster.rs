//! A Redis Cluster of three primaries: acquire and release of distinct keys without contention, against the raw driver and
//! against our own scripts, one for each call, through the driver's cluster client.
//!
//! The keys are in slots of their own, or have one hash tag. `cargo bench -p lock-runtime-benches --bench redis_cluster
//! [-- [rounds [milliseconds]]]`: 21 rounds of 250 ms by default. With `--features tls`, all contenders use TLS, and the table
//! is `redis_cluster_tls`. Three servers and the client share the cores of one machine, so a server with a core of its own
//! does better than here.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a benchmark"
)]

mod support;
#[allow(dead_code, unreachable_pub, reason = "shared with the tests")]
#[path = "../../tests/support/mod.rs"]
mod tests_support;

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lock_runtime::{
    LockManager,
    backend::{RedisCluster as Store, redis::GroupCommit},
};
use redis::{Cmd, cluster::ClusterClient, cluster_async::ClusterConnection};
use support::{Round, in_turn, median, plot, publish, ratios, round_with, targets::Target};
use tests_support::redis_cluster::{RedisCluster, Setup};

const TTL: Duration = Duration::from_secs(30);
const ROUNDS: u64 = 21;
const LENGTH: u64 = 250;
const TASKS: [usize; 3] = [1, 64, 256];
const CONTENDERS: [&str; 4] =
    ["raw driver", "our scripts through the driver", "lock-runtime", "lock-runtime, single calls"];
const RAW: usize = 0;
const SCRIPTS: usize = 1;
const OURS: usize = 2;

/// Where the keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    /// Each in a slot of its own.
    Apart,
    /// All in one slot.
    OfOneTag,
}

impl Keys {
    fn name(self, who: &str, task: usize) -> String {
        match self {
            Self::Apart => format!("{who}:{task}"),
            Self::OfOneTag => format!("{{tag}}:{who}:{task}"),
        }
    }
}

/// The acquisition and the release of one lock, as our client has sent them.
#[derive(Clone)]
struct Recorded {
    acquire: Vec<Vec<u8>>,
    release: Vec<Vec<u8>>,
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let rounds = numbers.next().unwrap_or(ROUNDS);
    let length = Duration::from_millis(numbers.next().unwrap_or(LENGTH));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(measure(rounds, length));
}

async fn measure(rounds: u64, length: Duration) {
    let (cluster, driver, rest) = start().await;
    let url = cluster.url("", &rest);
    let locks = LockManager::connect(&url).await.unwrap().ttl(TTL);
    let single = LockManager::new(Store::with_group_commit(&url, GroupCommit::Never).unwrap()).ttl(TTL);
    single.ping().await.unwrap();
    let (mut rows, mut targets) = (Vec::new(), Vec::new());
    for keys in [Keys::Apart, Keys::OfOneTag] {
        let recorded = record(&cluster, &single, keys).await;
        for tasks in TASKS {
            let mut results: [Vec<Round>; CONTENDERS.len()] = Default::default();
            // The first round warms up and is not counted.
            for n in 0..=rounds {
                for (number, results) in in_turn(n, results.iter_mut().enumerate()) {
                    let result = match number {
                        RAW => raw(&driver, keys, tasks, length).await,
                        SCRIPTS => scripts(&driver, &recorded, tasks, length).await,
                        OURS => ours(&locks, keys, tasks, length).await,
                        _ => ours(&single, keys, tasks, length).await,
                    };
                    if n > 0 {
                        results.push(result);
                    }
                }
            }
            let each = |number: usize| results[number].iter().map(Round::per_second).collect::<Vec<_>>();
            let (raw, scripts) = (each(RAW), each(SCRIPTS));
            let situation = format!("{keys:?}, {tasks} tasks");
            for (number, contender) in CONTENDERS.iter().enumerate() {
                let speed = each(number);
                let micros = |p| {
                    let of = |round: &mut Round| round.percentile(p).as_secs_f64() * 1e6;
                    median(&results[number].clone().iter_mut().map(of).collect::<Vec<_>>())
                };
                rows.push(vec![
                    situation.clone(),
                    (*contender).to_owned(),
                    format!("{:.0}", median(&speed)),
                    ratios(&speed, &raw).to_string(),
                    ratios(&speed, &scripts).to_string(),
                    format!("{:.0}", micros(0.5)),
                    format!("{:.0}", micros(0.99)),
                ]);
            }
            if tasks > 1 {
                let of = |base: &[f64]| ratios(&each(OURS), base);
                let least = if keys == Keys::Apart { 1.0 } else { 1.2 };
                targets.push(Target::at_least(format!("{situation}: of raw"), of(&raw), 0.6));
                targets.push(Target::at_least(format!("{situation}: of our scripts"), of(&scripts), least));
            }
        }
    }
    publish(
        TABLE,
        &["keys", "contender", "cycles/s", "of raw [95 %]", "of our scripts [95 %]", "p50 µs", "p99 µs"],
        &rows,
        plot::NONE,
        &targets,
    );
    drop(cluster);
    tests_support::processes::finish();
}

#[cfg(not(feature = "tls"))]
const TABLE: &str = "redis_cluster";
#[cfg(feature = "tls")]
const TABLE: &str = "redis_cluster_tls";

/// Starts a cluster; returns a connection of the driver, and the end of the URL for our client, too.
#[cfg(not(feature = "tls"))]
async fn start() -> (RedisCluster, ClusterConnection, String) {
    let cluster = RedisCluster::start(Setup::default());
    let client = ClusterClient::new(seeds(&cluster, "redis")).unwrap();
    (cluster, client.get_async_connection().await.unwrap(), String::new())
}

#[cfg(feature = "tls")]
async fn start() -> (RedisCluster, ClusterConnection, String) {
    // Of all servers, which they and the clients trust.
    let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let write = |name: &str, text: String| {
        let path = tests_support::processes::folder().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let pem = certified.cert.pem();
    let (cert, key) =
        (write("cert.pem", pem.clone()), write("key.pem", certified.signing_key.serialize_pem()));
    let settings = [
        ["--tls-cert-file", &cert],
        ["--tls-key-file", &key],
        ["--tls-ca-cert-file", &cert],
        ["--tls-auth-clients", "no"],
    ];
    let setup = Setup { settings: &settings.concat(), with_tls: true, ..Setup::default() };
    let cluster = RedisCluster::start(setup);
    let trusted = redis::TlsCertificates { client_tls: None, root_cert: Some(pem.into_bytes()) };
    let client = ClusterClient::builder(seeds(&cluster, "rediss")).certs(trusted).build().unwrap();
    (cluster, client.get_async_connection().await.unwrap(), format!("?tls_ca={cert}"))
}

fn seeds(cluster: &RedisCluster, scheme: &str) -> Vec<String> {
    let seed = |port: u16| format!("{scheme}://127.0.0.1:{port}?protocol=resp3");
    cluster.members.iter().map(|member| seed(member.port)).collect()
}

async fn raw(driver: &ClusterConnection, keys: Keys, tasks: usize, length: Duration) -> Round {
    static TOKENS: AtomicU64 = AtomicU64::new(1);
    let delete = Arc::new(redis::Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end",
    ));
    let driver = driver.clone();
    round_with(
        || Duration::ZERO,
        tasks,
        length,
        move |task, _| {
            let (mut driver, delete) = (driver.clone(), Arc::clone(&delete));
            async move {
                let (key, token) = (keys.name("raw", task), TOKENS.fetch_add(1, Ordering::Relaxed));
                let mut set = redis::cmd("SET");
                set.arg(&key).arg(token).arg("NX").arg("PX").arg(30_000);
                let () = set.query_async(&mut driver).await.unwrap();
                let deleted: i64 = delete.key(&key).arg(token).invoke_async(&mut driver).await.unwrap();
                assert_eq!(deleted, 1);
            }
        },
    )
    .await
}

async fn scripts(driver: &ClusterConnection, recorded: &[Recorded], tasks: usize, length: Duration) -> Round {
    let (driver, recorded) = (driver.clone(), Arc::new(recorded.to_vec()));
    round_with(
        || Duration::ZERO,
        tasks,
        length,
        move |task, _| {
            let (mut driver, recorded) = (driver.clone(), Arc::clone(&recorded));
            async move {
                for call in [&recorded[task].acquire, &recorded[task].release] {
                    let mut command = Cmd::new();
                    for argument in call {
                        command.arg(argument);
                    }
                    let _: redis::Value = command.query_async(&mut driver).await.unwrap();
                }
            }
        },
    )
    .await
}

async fn ours(locks: &LockManager, keys: Keys, tasks: usize, length: Duration) -> Round {
    let locks = locks.clone();
    round_with(
        || Duration::ZERO,
        tasks,
        length,
        move |task, _| {
            let locks = locks.clone();
            async move {
                let guard = locks.lock(keys.name("ours", task)).acquire().await.unwrap();
                guard.release().await.unwrap();
            }
        },
    )
    .await
}

/// Records what our client sends for one lock after the other, each call alone.
async fn record(cluster: &RedisCluster, single: &LockManager, keys: Keys) -> Vec<Recorded> {
    let monitors: Vec<_> = cluster.members.iter().map(|member| monitor(member.server().socket())).collect();
    let count = TASKS.into_iter().max().unwrap();
    for task in 0..count {
        let lock = single.lock(keys.name("scripts", task));
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    let mut all: Vec<Vec<Vec<Vec<u8>>>> = vec![Vec::new(); count];
    for (member, monitor) in cluster.members.iter().zip(monitors) {
        member.command(&["ECHO", "end of the record"]);
        for line in monitor.lines() {
            let words = words(&line.unwrap());
            if words.first().is_some_and(|word| word == b"ECHO") {
                break;
            }
            let key = words.get(5).map(|key| String::from_utf8_lossy(key).into_owned()).unwrap_or_default();
            let task = key.rsplit(':').next().and_then(|task| task.parse::<usize>().ok());
            if words[0] == b"EVALSHA" && key.contains("scripts:") {
                all[task.unwrap()].push(words);
            }
        }
    }
    let recorded = all.into_iter().map(|calls| {
        let [acquire, release] = &calls[..] else { panic!("two calls, not {}", calls.len()) };
        let mut acquire = acquire.clone();
        // The limit of the request, behind its six keys: it never passes.
        acquire[9] = b"9007199254740991".to_vec();
        Recorded { acquire, release: release.clone() }
    });
    recorded.collect()
}

/// What the server is told from now on.
fn monitor(socket: &std::path::Path) -> BufReader<UnixStream> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"MONITOR\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    reader.read_line(&mut String::new()).unwrap();
    reader
}

/// The words of a line of `MONITOR`: `+<time> [<db> <client>] "<word>" …`.
fn words(line: &str) -> Vec<Vec<u8>> {
    let Some((_, rest)) = line.split_once("] ") else { return vec![Vec::new()] };
    let inner = rest.trim_start_matches('"').trim_end().trim_end_matches('"');
    inner.split("\" \"").map(|word| word.as_bytes().to_vec()).collect()
}
