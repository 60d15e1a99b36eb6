//! What is refused: a server that is two nodes, the vote of a node that may have forgotten locks, a lease that is too
//! long, a user without the permissions.

use std::time::Instant;

use lock_runtime::{LockErrorKind, LockManager, backend::Redlock};

use super::{LONG, MS, Node, Quorum};
use crate::support::{
    proxy::{Proxy, Upstream},
    redis_server::RedisServer,
};

#[tokio::test]
async fn two_addresses_of_one_server_are_refused() {
    let mut quorum = Quorum::start(2);
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(Upstream::Unix(quorum.nodes[0].server.socket().into()));
    quorum.nodes.push(Node { server, proxy });
    let error =
        LockManager::connect(&format!("redlock://{}?durable=true", quorum.addresses())).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::InvalidOptions, "{error}");
    assert!(error.to_string().contains("under another address"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_may_have_forgotten_locks_votes_after_the_longest_lease() {
    let mut quorum = Quorum::start(3);
    let url = format!("redlock://{}?max_ttl=1s", quorum.addresses());
    let error = LockManager::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend);
    assert!(error.is_retryable(), "{error}");
    for word in ["votes in", "`durable=true`", "appendfsync always"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    let locks = LockManager::connect_lazy(&url).unwrap().ttl(1_000 * MS);
    let began = Instant::now();
    let guard = locks.lock("k").wait(LONG).acquire().await.unwrap();
    // The first may have started a second ago.
    assert!(began.elapsed() > 1_000 * MS, "{:?}", began.elapsed());
    quorum.held_everywhere().await;
    // One restarts without its data. The other two have a majority, and the hold stays.
    let restarted = Instant::now();
    quorum.nodes[0].server.restart();
    while restarted.elapsed() < 2_500 * MS {
        assert_eq!(quorum.nodes[0].holder(), None, "joined {:?} after it was started", restarted.elapsed());
        assert!(guard.is_valid());
        tokio::time::sleep(20 * MS).await;
    }
    guard.release().await.unwrap();
    // Another one: now only one votes.
    quorum.nodes[1].server.restart();
    quorum.nodes[0].server.restart();
    let restarted = Instant::now();
    let error = locks.lock("k").wait(500 * MS).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    locks.lock("k").wait(LONG).acquire().await.unwrap().release().await.unwrap();
    assert!(restarted.elapsed() > 2_000 * MS, "{:?}", restarted.elapsed());
}

#[tokio::test]
async fn a_lease_longer_than_the_longest_is_refused_and_the_setting_is_named() {
    let quorum = Quorum::start(3);
    let url = format!("redlock://{}?max_ttl=5s", quorum.addresses());
    let locks = LockManager::connect_lazy(&url).unwrap();
    let error = locks.lock("k").ttl(6_000 * MS).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
    assert!(error.to_string().contains("`max_ttl`"), "{error}");
}

/// Three servers, and a store whose user has these rules.
fn with_user(rules: &[&str]) -> (Vec<RedisServer>, Redlock) {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start(&[&["--user"], rules].concat())).collect();
    let url =
        |server: &RedisServer| format!("redis+unix://{}?user=locks&pass=password", server.socket().display());
    let store = Redlock::new(servers.iter().map(url)).unwrap().max_ttl(1_000 * MS);
    (servers, store)
}

/// The user of the documentation's `ACL SETUSER`, word for word.
fn published_user() -> Vec<&'static str> {
    let page = include_str!("../../../lock-runtime/src/backend/stores/redlock/docs.md");
    let (_, rest) = page.split_once("ACL SETUSER ").expect("the page has the user");
    rest.split_once("```").expect("it ends with the block").0.split_whitespace().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_published_user_can_do_what_locks_need() {
    let (_servers, store) = with_user(&published_user());
    let (ours, theirs) = (LockManager::new(store.clone()), LockManager::new(store));
    let guard = ours.lock("k").ttl(1_000 * MS).wait(LONG).acquire().await.unwrap();
    let lock = theirs.lock("k").ttl(1_000 * MS).wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    tokio::time::sleep(1_500 * MS).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    let error = ours.with_prefix("other:").unwrap().lock("k").ttl(1_000 * MS).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend);
    assert!(!error.is_retryable() && error.to_string().contains("ACL"), "{error}");
}

/// Others are then assumed to wait, so the tasks of a process hand the lock over no more than 64 times in a row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_may_not_count_subscribers_locks_all_the_same() {
    let mut rules = published_user();
    rules.retain(|rule| *rule != "+pubsub|numsub");
    let (servers, store) = with_user(&rules);
    let lock = LockManager::new(store).lock("k").ttl(1_000 * MS).wait(LONG);
    lock.acquire().await.unwrap().release().await.unwrap();
    let before = servers[0].calls("evalsha");
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move {
                for _ in 0..40 {
                    lock.acquire().await.unwrap().release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    // 640 holds in at least ten tenures, with two scripts each.
    let scripts = servers[0].calls("evalsha") - before;
    assert!((20..600).contains(&scripts), "{scripts} scripts");
}
