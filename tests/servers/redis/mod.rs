//! Tests of one Redis server, and so not cases of the conformance suite; shared helpers for the files below it.

mod credentials;
mod failover;
mod false_alarms;
mod foreign_keys;
mod forged_messages;
mod formats;
mod names;
mod operators;
pub(crate) mod overheard;
pub mod permissions;
mod places;
mod queue;
mod release;
mod renewal;
mod urls;

use std::{net::TcpListener, time::Duration};

use lock_runtime::{
    LockErrorKind, LockGuard, LockManager,
    backend::{Redis, redis::GroupCommit},
};
use tokio::sync::Mutex;

use crate::support::{
    proxy::{Flow, Proxy, Upstream, Way},
    redis_server::RedisServer,
    resp::Value,
    stopwatch::Moment,
    until,
};

const LONG: Duration = Duration::from_secs(20);

fn url(server: &RedisServer, rest: &str) -> String {
    format!("redis+unix://{}{rest}", server.socket().display())
}

/// A client whose calls share round trips at these times.
async fn connected(url: &str, group_commit: GroupCommit) -> LockManager {
    let locks = LockManager::new(Redis::with_group_commit(url, group_commit).unwrap());
    locks.ping().await.unwrap();
    locks
}

/// For tests that keep many locks: all holds of a process are renewed by a single thread.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Acquires `count` locks, many at once.
async fn hold(locks: &LockManager, count: usize, ttl: Duration) -> Vec<LockGuard> {
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move {
                let mut guards = Vec::new();
                for number in (task..count).step_by(64) {
                    let lock = locks.lock(format!("held:{number}")).ttl(ttl).wait(LONG);
                    guards.push(lock.acquire().await.unwrap());
                }
                guards
            })
        })
        .collect();
    let mut guards = Vec::new();
    for task in tasks {
        guards.extend(task.await.unwrap());
    }
    guards
}

#[tokio::test]
async fn tokens_rise_across_the_promotion_of_a_replica_and_across_a_loss_of_all_data() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let primary = RedisServer::start(&["--port", &port, "--bind", "127.0.0.1"]);
    let replica = RedisServer::start(&["--replicaof", "127.0.0.1", &port]);
    until("the replica follows", || match replica.command(&["INFO", "replication"]) {
        Value::Text(info) if info.contains("master_link_status:up") => Ok(()),
        info => Err(info),
    })
    .await;
    let refused = LockManager::connect(&url(&replica, "")).await.unwrap_err();
    assert!(refused.to_string().contains("replica"), "{refused}");

    let locks = LockManager::connect(&url(&primary, "")).await.unwrap();
    let before = locks.lock("user:42").acquire().await.unwrap();
    // Only the data that has arrived by now is known to the new primary.
    drop(primary);
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    replica.command(&["FLUSHALL"]);
    let locks = LockManager::connect(&url(&replica, "")).await.unwrap();
    let mut last = before.fencing_token();
    for loses in [false, true, true] {
        if loses {
            replica.command(&["FLUSHALL"]);
        }
        let guard = locks.lock("user:42").acquire().await.unwrap();
        assert!(guard.fencing_token() > last);
        last = guard.fencing_token();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_when_that_is_asked_for() {
    let server = RedisServer::start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    LockManager::connect(&url(&server, "")).await.unwrap();
    let refused = LockManager::connect(&url(&server, "?strict=true")).await.unwrap_err();
    assert!(refused.to_string().contains("noeviction"), "{refused}");
}

#[tokio::test]
async fn a_server_is_one_store_by_whatever_address() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
    let address = proxy.address();
    let connect = async |url: String| LockManager::connect(&url).await.unwrap();
    let locks = connect(url(&server, "?db=3")).await;
    let section = async {
        for same in
            [format!("redis://{address}/3"), format!("redis://localhost:{}/3?strict=true", address.port())]
        {
            let error = connect(same).await.lock("k").wait(LONG).acquire().await.unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::WouldDeadlock, "{error}");
        }
        let others = RedisServer::start(&[]);
        for other in [format!("redis://{address}/4"), url(&others, "?db=3")] {
            connect(other).await.lock("k").acquire().await.unwrap().release().await.unwrap();
        }
    };
    locks.lock("k").acquire().await.unwrap().run(section).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_many_lengths_share_a_round_trip() {
    const DELAY: Duration = Duration::from_millis(5);
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
    let locks = connected(&format!("redis://{}", proxy.address()), GroupCommit::Always).await;
    locks.lock("warm").acquire().await.unwrap().release().await.unwrap();
    proxy.set(Way::ToServer, Flow::Delay(DELAY));
    let began = Moment::now();
    let calls: Vec<_> = (0..256)
        .map(|number| {
            let lock = locks.lock(format!("k{number}")).ttl(LONG + Duration::from_millis(number));
            tokio::spawn(async move { lock.acquire().await.unwrap() })
        })
        .collect();
    let mut guards = Vec::new();
    for call in calls {
        guards.push(call.await.unwrap());
    }
    let took = began.took();
    // One after the other they would need 256 round trips.
    assert!(took.within(100 * DELAY), "{took:?}");
    drop(guards);
    locks.shutdown().await;
}

#[tokio::test]
async fn a_key_of_a_wrong_type_is_named_and_only_the_holder_s_makes_the_lock_s_name_invalid() {
    let server = RedisServer::start(&[]);
    let locks = LockManager::connect(&url(&server, "")).await.unwrap();
    let held = locks.lock("user:42").acquire().await.unwrap();
    let other = LockManager::connect(&url(&server, "")).await.unwrap();
    for (key, kind, named) in [
        ("lock:{lock:user:42}:~1:queue", LockErrorKind::Backend, "the list of its waiters"),
        ("lock:{lock:user:42}:~1:places", LockErrorKind::Backend, "the hash of their places"),
        ("lock:user:7", LockErrorKind::InvalidKey, "is not a lock"),
        ("lock:~1:fence", LockErrorKind::Backend, "the counter of fencing tokens"),
    ] {
        server.command(&["DEL", key]);
        server.command(&["SADD", key, "x"]);
        let name = if named.contains("lock") || named.contains("counter") { "user:7" } else { "user:42" };
        let refused = other.lock(name).wait(LONG).acquire().await.unwrap_err();
        assert_eq!(refused.kind(), kind, "{refused}");
        let text = refused.to_string();
        assert!(!refused.is_retryable() && text.contains(named), "{text}");
        assert!(kind == LockErrorKind::InvalidKey || text.contains(&format!("`{key}`")), "{text}");
        server.command(&["DEL", key]);
    }
    held.release().await.unwrap();
}
