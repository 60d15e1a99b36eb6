//! Failover: a name moves to another server while the old one still answers.

use std::{
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use lock_runtime::{LockErrorKind, LockManager, backend::redis::GroupCommit};

use super::{LONG, connected, url};
use crate::support::{
    proxy::{Proxy, Upstream},
    redis_server::RedisServer,
    resp::Value,
    until,
};

/// Time within which the same manager locks again once its name leads to the new primary.
const SOON: Duration = Duration::from_millis(250);

/// A primary and its replica, and a name that leads to the primary.
struct Pair {
    first: Node,
    second: Node,
    name: Proxy,
}

struct Node {
    server: RedisServer,
    port: String,
}

impl Node {
    fn start(settings: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let settings =
            [&["--port", &port, "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0"], settings];
        Self { server: RedisServer::start(&settings.concat()), port }
    }

    fn upstream(&self) -> Upstream {
        Upstream::Unix(self.server.socket().into())
    }

    fn command(&self, words: &[&str]) -> Value {
        self.server.command(words)
    }

    fn follow(&self, other: &Self) {
        self.command(&["REPLICAOF", "127.0.0.1", &other.port]);
    }

    /// Waits until a key has arrived by replication.
    async fn has(&self, key: &str) {
        until(key, || match self.command(&["EXISTS", key]).int() {
            1 => Ok(()),
            other => Err(other),
        })
        .await;
    }

    /// Waits until `INFO replication` has this line.
    async fn reports(&self, line: &str) {
        until(line, || match self.command(&["INFO", "replication"]) {
            Value::Text(info) if info.contains(line) => Ok(()),
            info => Err(info),
        })
        .await;
    }
}

impl Pair {
    async fn start(settings: &[&str]) -> Self {
        let (first, second) = (Node::start(settings), Node::start(settings));
        second.follow(&first);
        second.reports("master_link_status:up").await;
        let name = Proxy::start(first.upstream());
        Self { first, second, name }
    }

    fn url(&self) -> String {
        format!("redis://{}", self.name.address())
    }

    async fn connect(&self) -> LockManager {
        let locks = LockManager::connect(&self.url()).await.unwrap();
        // The connection must not be brand-new.
        locks.lock("warm").acquire().await.unwrap().release().await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        locks
    }

    /// Makes the second the primary and the first its replica, which keeps its clients.
    fn change_roles(&self) {
        self.second.command(&["REPLICAOF", "NO", "ONE"]);
        self.first.follow(&self.second);
    }

    fn move_name(&self) {
        self.name.lead_to(self.second.upstream());
    }
}

#[tokio::test]
async fn a_demoted_primary_is_left_and_what_was_held_is_kept() {
    let pair = Pair::start(&[]).await;
    let locks = pair.connect().await;
    let ttl = Duration::from_secs(3);
    let held = locks.lock("held").ttl(ttl).acquire().await.unwrap();
    let freed = locks.lock("freed").acquire().await.unwrap();
    // Its renewals have a connection by now.
    tokio::time::sleep(ttl / 2).await;
    pair.second.has("lock:freed").await;
    pair.change_roles();
    pair.first.reports("master_link_status:up").await;

    // The name still leads to the first one: many callers are refused, and make few connections.
    let (before, began) = (pair.name.accepted(), Instant::now());
    while began.elapsed() < Duration::from_secs(1) {
        let calls: Vec<_> = (0..32)
            .map(|number| {
                let lock = locks.lock(format!("k{number}"));
                tokio::spawn(async move { lock.try_acquire().await })
            })
            .collect();
        for call in calls {
            let refused = call.await.unwrap().unwrap_err();
            assert_eq!(refused.kind(), LockErrorKind::Backend, "{refused}");
            assert!(refused.is_retryable() && refused.to_string().contains("replica"), "{refused}");
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (made, took) = (pair.name.accepted() - before, began.elapsed());
    println!("{made} connections in {took:?}");
    // One per 50 ms from here, and the few of the renewals.
    assert!(f64::from(u32::try_from(made).unwrap()) < took.as_secs_f64() * 25.0 + 5.0, "{made} in {took:?}");

    pair.move_name();
    let moved = Instant::now();
    while let Err(refused) = locks.lock("user:42").try_acquire().await {
        assert!(moved.elapsed() < SOON, "{refused}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!("locked again after {:?}", moved.elapsed());
    assert!(moved.elapsed() < SOON, "{:?}", moved.elapsed());
    assert_eq!(pair.second.command(&["EXISTS", "lock:held", "lock:freed"]).int(), 2);
    freed.release().await.unwrap();
    tokio::time::sleep(2 * ttl).await;
    assert!(held.is_valid(), "it was renewed at the first server only");
    held.release().await.unwrap();
    locks.shutdown().await;
    assert_eq!(pair.second.command(&["KEYS", "*"]).texts(), ["lock:~1:fence"]);
}

#[tokio::test]
async fn a_caller_that_waits_locks_soon_after_the_name_has_moved() {
    let pair = Pair::start(&[]).await;
    let locks = pair.connect().await;
    let held = LockManager::connect(&url(&pair.first.server, "")).await.unwrap();
    let held = held.lock("queued").auto_renew(false).acquire().await.unwrap();
    let queued = {
        let lock = locks.lock("queued").wait(LONG);
        tokio::spawn(async move { lock.acquire().await.map(|guard| (Instant::now(), guard)) })
    };
    pair.second.has("lock:{lock:queued}:~1:queue").await;
    pair.change_roles();
    pair.first.reports("master_link_status:up").await;
    let new = {
        let lock = locks.lock("new").wait(LONG);
        tokio::spawn(async move { lock.acquire().await.map(|guard| (Instant::now(), guard)) })
    };
    // Both have been refused for a while, and now poll at their lowest rate.
    tokio::time::sleep(Duration::from_secs(3)).await;
    drop(held);
    pair.second.command(&["DEL", "lock:queued"]);
    let moved = Instant::now();
    pair.move_name();
    for (what, call) in [("new", new), ("queued", queued)] {
        let (at, _guard) = call.await.unwrap().unwrap();
        println!("{what}: {:?}", at.duration_since(moved));
        assert!(at < moved + SOON, "{what}: {:?}", at.duration_since(moved));
    }
}

/// Neither a single attempt nor a release nor a renewal on an old connection fails when its name already leads
/// elsewhere: a call that a replica refused is repeated over a new connection.
#[tokio::test]
async fn what_a_demoted_primary_refuses_is_repeated_over_a_new_connection() {
    let pair = Pair::start(&[]).await;
    for grouped in [GroupCommit::Auto, GroupCommit::Always] {
        // Not the same names again: locks released at the end may be forgotten on the way back.
        let mark = format!("{grouped:?}");
        let locks = connected(&pair.url(), grouped).await;
        let released = locks.lock(format!("released:{mark}")).acquire().await.unwrap();
        let (old, new) = (&pair.first, &pair.second);
        new.has(&format!("lock:released:{mark}")).await;
        // The connection must not be brand-new.
        tokio::time::sleep(Duration::from_millis(100)).await;
        pair.change_roles();
        old.reports("master_link_status:up").await;
        pair.move_name();
        released.release().await.unwrap();
        let taken: Vec<_> = (0..40)
            .map(|number| {
                let lock = locks.lock(format!("k{number}:{mark}"));
                tokio::spawn(async move { lock.try_acquire().await })
            })
            .collect();
        for call in taken {
            assert!(call.await.unwrap().unwrap().is_some());
        }
        // And back.
        old.command(&["REPLICAOF", "NO", "ONE"]);
        new.follow(old);
        new.reports("master_link_status:up").await;
        pair.name.lead_to(old.upstream());
        locks.shutdown().await;
    }
}

/// A replica that lacks a lease does not decide that the lease is over.
#[tokio::test]
async fn what_a_demoted_primary_has_not_heard_of_is_not_over() {
    let demoted = async |scheme: &str| {
        let pair = Pair::start(&[]).await;
        let locks = LockManager::connect(&pair.url().replace("redis", scheme)).await.unwrap();
        // The library's own thread has a connection by now, which must not be brand-new.
        locks.lock("warm").acquire().await.unwrap().release().await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        pair.second.command(&["REPLICAOF", "NO", "ONE"]);
        // The first one gets none of the writes of the second.
        pair.first.command(&["REPLICAOF", "127.0.0.1", "1"]);
        pair.move_name();
        (pair, locks)
    };
    for (scheme, key) in [("redis", "lock:x"), ("redisson", "x")] {
        let ttl = Duration::from_millis(1_500);
        let (pair, locks) = demoted(scheme).await;
        let renewed = locks.lock("x").ttl(ttl).wait(LONG).acquire().await.unwrap();
        assert_eq!(pair.second.command(&["EXISTS", key]).int(), 1);
        tokio::time::sleep(2 * ttl).await;
        assert!(renewed.is_valid(), "{scheme}");

        let (pair, locks) = demoted(scheme).await;
        drop(locks.lock("x").ttl(10 * LONG).wait(LONG).acquire().await.unwrap());
        until(scheme, || match pair.second.command(&["EXISTS", key]).int() {
            0 => Ok(()),
            held => Err(held),
        })
        .await;
    }
}

/// A replica that takes over the data of its new primary, or has lost it, refuses everything, even reads.
#[tokio::test]
async fn a_server_that_takes_no_calls_is_left_for_the_one_that_its_name_leads_to() {
    let slow = ["--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024"];
    for (settings, word) in [(&slow[..], "LOADING"), (&["--replica-serve-stale-data", "no"], "MASTERDOWN")] {
        let pair = Pair::start(settings).await;
        let locks = pair.connect().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        pair.second.command(&["REPLICAOF", "NO", "ONE"]);
        if word == "LOADING" {
            for number in 0..100 {
                pair.second.command(&["SET", &format!("filler:{number}"), "x"]);
                // A write that the other one never had, so that it takes over all data, not only the rest.
                pair.first.command(&["SET", "diverged", "x"]);
            }
            pair.first.follow(&pair.second);
        } else {
            pair.first.command(&["REPLICAOF", "127.0.0.1", "1"]);
        }
        until(word, || match pair.first.command(&["EVAL", "return redis.call('GET', 'x')", "0"]) {
            Value::Error(error) if error.starts_with(word) => Ok(()),
            other => Err(other),
        })
        .await;
        pair.move_name();
        assert!(locks.lock("user:42").try_acquire().await.unwrap().is_some(), "{word}");
    }
}

/// Traffic through a failover without data loss: every call that is not granted fails as an outage, no lock is held
/// twice, and nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinated_failover_under_load_leaves_nothing_and_overlaps_nowhere() {
    let pair = Pair::start(&[]).await;
    let url = pair.url();
    let inside: Arc<[AtomicBool]> = (0..8).map(|_| AtomicBool::new(false)).collect();
    let (entries, failures, stop) = <(Arc<AtomicU64>, Arc<AtomicU64>, Arc<AtomicBool>)>::default();
    let (mut tasks, mut managers) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let locks = LockManager::connect(&url).await.unwrap();
        for task in 0..16 {
            let (locks, inside) = (locks.clone(), Arc::clone(&inside));
            let (entries, failures, stop) = (Arc::clone(&entries), Arc::clone(&failures), Arc::clone(&stop));
            tasks.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let lock = locks.lock(format!("k{}", task % 8)).ttl(Duration::from_secs(2)).wait(LONG);
                    let guard = match lock.acquire().await {
                        Ok(guard) => guard,
                        Err(error) => {
                            assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
                            failures.fetch_add(1, Ordering::Relaxed);
                            continue;
                        }
                    };
                    let inside = &inside[task % 8];
                    assert!(!inside.swap(true, Ordering::AcqRel), "held twice");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    assert!(guard.is_valid());
                    inside.store(false, Ordering::Release);
                    entries.fetch_add(1, Ordering::Relaxed);
                    drop(guard);
                }
            }));
        }
        managers.push(locks);
    }
    let mut nodes = [&pair.first, &pair.second];
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let [old, new] = nodes;
        old.reports("state=online").await;
        assert_eq!(old.command(&["FAILOVER", "TO", "127.0.0.1", &new.port]), Value::Text("OK".into()));
        new.reports("role:master").await;
        pair.name.lead_to(new.upstream());
        let before = entries.load(Ordering::Relaxed);
        until("sections go on", || match entries.load(Ordering::Relaxed) {
            now if now > before + 8 => Ok(()),
            now => Err(now),
        })
        .await;
        nodes.reverse();
        nodes[1].reports("master_link_status:up").await;
    }
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    for locks in managers {
        locks.shutdown().await;
    }
    println!("{entries:?} entries, {failures:?} failures, {} connections", pair.name.accepted());
    until("only the fence is left", || match nodes[0].command(&["KEYS", "*"]).texts() {
        keys if keys == ["lock:~1:fence"] => Ok(()),
        keys => Err(keys),
    })
    .await;
}

#[tokio::test]
async fn a_server_of_another_kind_is_refused_when_connecting() {
    let cluster = RedisServer::start(&["--cluster-enabled", "yes"]);
    let sentinel = RedisServer::start(&["--sentinel"]);
    for (server, word) in [(&cluster, "Redis Cluster"), (&sentinel, "Sentinel")] {
        for rest in ["", "?db=1"] {
            let refused = LockManager::connect(&url(server, rest)).await.unwrap_err();
            assert!(!refused.is_retryable() && refused.to_string().contains(word), "{rest}: {refused}");
            assert!(!format!("{refused:?}").contains("redis.call"), "{refused:?}");
        }
    }
}
