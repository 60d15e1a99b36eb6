//! Tests of a Redis Cluster: how a lock's server is found, and what a move of its slot or a failover does to locks.

mod failover;
mod finding;
mod migration;
mod waiting;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use lock_runtime::{LockGuard, LockManager};
use tokio::task::JoinHandle;

use crate::support::{
    history::{self, Hold, Verdict},
    monotonic,
    proxy::{Proxy, Upstream},
    redis_cluster::{Member, RedisCluster},
    resp::Value,
    until,
};

const LONG: Duration = Duration::from_secs(30);
/// Time within which a call succeeds that nothing holds up; half of the time between two polls of a waiter.
const AT_ONCE: Duration = Duration::from_millis(500);

async fn connect(cluster: &RedisCluster) -> LockManager {
    LockManager::connect(&cluster.url("", "")).await.unwrap()
}

/// A proxy before each server, and the URL of the cluster behind them.
fn behind_proxies(cluster: &RedisCluster) -> (Vec<Proxy>, String) {
    let proxies: Vec<_> = (cluster.members.iter())
        .map(|member| Proxy::start(Upstream::Unix(member.server().socket().into())))
        .collect();
    let pairs: Vec<_> = (cluster.members.iter().zip(&proxies))
        .map(|(member, proxy)| format!("127.0.0.1:{}={}", member.port, proxy.address()))
        .collect();
    let seeds: Vec<_> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
    let url = format!("redis-cluster://{}?addresses={}", seeds.join(","), pairs.join(","));
    (proxies, url)
}

async fn free(locks: &LockManager, name: &str) -> LockGuard {
    locks.lock(name).wait(LONG).acquire().await.unwrap()
}

fn slot(cluster: &RedisCluster, name: &str) -> u16 {
    cluster.slot(&format!("lock:{name}"))
}

/// A name that begins with this text and whose lock is on this server.
fn name_at(cluster: &RedisCluster, member: &Member, begins: &str) -> String {
    let mut names = (0..).map(|number| format!("{begins}{number}"));
    names.find(|name| cluster.owner(slot(cluster, name)).id == member.id).expect("some name")
}

fn queue_of(name: &str) -> String {
    format!("lock:{{lock:{name}}}:~1:queue")
}

/// Waits until so many wait for a lock.
async fn queued(cluster: &RedisCluster, name: &str, count: i64) {
    let queue = queue_of(name);
    until(&queue, || match cluster.command(&["LLEN", &queue]).int() {
        now if now == count => Ok(()),
        now => Err(now),
    })
    .await;
}

/// Acquires in a task, which returns when it entered.
fn enters(locks: &LockManager, name: &str, ttl: Duration) -> JoinHandle<(Instant, LockGuard)> {
    let lock = locks.lock(name).ttl(ttl).wait(LONG);
    tokio::spawn(async move {
        let guard = lock.acquire().await.unwrap();
        (Instant::now(), guard)
    })
}

/// Waits until no key is left but the counters of tokens, which expire.
async fn only_counters_are_left(cluster: &RedisCluster) {
    until("only the counters are left", || {
        for primary in cluster.primaries() {
            for key in primary.command(&["KEYS", "*"]).texts() {
                if !key.ends_with(":fence") || primary.command(&["PTTL", &key]) == Value::Int(-1) {
                    return Err(key);
                }
            }
        }
        Ok(())
    })
    .await;
}

/// Enters and leaves until it is stopped; returns the number of failed calls.
async fn work(
    locks: LockManager,
    name: String,
    history: Arc<Mutex<Vec<Hold>>>,
    stop: Arc<AtomicBool>,
) -> Vec<String> {
    let mut failures = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let lock = locks.lock(&name).ttl(Duration::from_secs(3)).wait(LONG);
        let asked = monotonic();
        let guard = match lock.acquire().await {
            Ok(guard) => guard,
            Err(error) => {
                failures.push(error.to_string());
                continue;
            }
        };
        let from = monotonic();
        tokio::time::sleep(Duration::from_millis(1)).await;
        let until = if guard.is_valid() { monotonic() } else { from };
        let token = guard.fencing_token().get();
        history.lock().unwrap().push(Hold { token, asked, from, until });
        drop(guard);
    }
    failures
}

/// What a load of several clients found, and its failed calls.
struct Outcome {
    verdicts: Vec<Verdict>,
    failures: Vec<String>,
}

/// Lets several clients of this URL compete for these locks while `meanwhile` runs.
async fn under_load(url: &str, names: &[String], meanwhile: impl AsyncFnOnce()) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    let histories: Vec<_> = names.iter().map(|_| Arc::default()).collect();
    let (mut tasks, mut managers) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let locks = LockManager::connect(url).await.unwrap();
        for (name, history) in names.iter().zip(&histories) {
            for _ in 0..2 {
                let (history, stop) = (Arc::clone(history), Arc::clone(&stop));
                tasks.push(tokio::spawn(work(locks.clone(), name.clone(), history, stop)));
            }
        }
        managers.push(locks);
    }
    meanwhile().await;
    stop.store(true, Ordering::Relaxed);
    let mut failures = Vec::new();
    for task in tasks {
        failures.extend(task.await.unwrap());
    }
    for locks in managers {
        locks.shutdown().await;
    }
    let verdicts = histories.iter().map(|history| history::judge(history.lock().unwrap().clone())).collect();
    Outcome { verdicts, failures }
}
