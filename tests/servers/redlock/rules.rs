//! What is refused: a server that is two nodes, the vote of a node that may have forgotten locks, a lease that is too
//! long, a user without the permissions.

use std::time::Instant;

use lock_runtime::{LockErrorKind, LockManager, backend::Redlock};

use super::{LONG, MS, Node, Quorum};
use crate::support::{
    proxy::{Proxy, Upstream},
    redis_server::RedisServer,
    traces, until,
};

#[tokio::test]
async fn two_addresses_of_one_server_are_refused() {
    let mut quorum = Quorum::start(2);
    let server = RedisServer::start_durable(&[]);
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
    for word in ["votes in", "short `max_ttl`", "`durable=true` is for", "appendfsync always"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    // Without a `ttl`, for the longest that is allowed.
    let locks = LockManager::connect_lazy(&url).unwrap();
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
pub(super) fn with_user(rules: &[&str]) -> (Vec<RedisServer>, Redlock) {
    let servers: Vec<_> =
        (0..3).map(|_| RedisServer::start_durable(&[&["--user"], rules].concat())).collect();
    let url =
        |server: &RedisServer| format!("redis+unix://{}?user=locks&pass=password", server.socket().display());
    let store = Redlock::new(servers.iter().map(url)).unwrap().max_ttl(1_000 * MS);
    (servers, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_show_that_they_forget_are_not_durable() {
    let nodes = Quorum { nodes: (0..3).map(|_| Node::of(RedisServer::start(&[]))).collect() };
    let url = format!("redlock://{}?durable=true", nodes.addresses());
    let lazy = LockManager::connect_lazy(&url).unwrap();
    let set = |setting: &str, value: &str| {
        for node in &nodes.nodes {
            node.server.command(&["CONFIG", "SET", setting, value]);
        }
    };
    let refused = async |what: &str| {
        let connected = LockManager::connect(&url).await.unwrap_err();
        let acquired = lazy.lock("k").wait(LONG).acquire().await.unwrap_err();
        for error in [connected, acquired] {
            assert_eq!(error.kind(), LockErrorKind::InvalidOptions, "{error}");
            for word in [what, "remove `durable=true`", "`appendonly yes`", "`appendfsync always`"] {
                assert!(error.to_string().contains(word), "{word}: {error}");
            }
        }
        assert_eq!(nodes.held(), 0);
    };
    refused("has `appendonly no`").await;
    set("appendonly", "yes");
    // A connection that was refused is replaced after a second.
    tokio::time::sleep(1_200 * MS).await;
    refused("has `appendfsync everysec`").await;
    set("appendfsync", "always");
    LockManager::connect(&url).await.unwrap();
    tokio::time::sleep(1_200 * MS).await;
    lazy.lock("k").acquire().await.unwrap().release().await.unwrap();
}

/// A minority of such nodes has no vote, and the others go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_shows_that_it_forgets_has_no_vote() {
    let mut quorum = Quorum::start(2);
    quorum.nodes.push(Node::of(RedisServer::start(&[])));
    let locks = LockManager::new(quorum.store());
    let guard = locks.lock("k").acquire().await.unwrap();
    tokio::time::sleep(100 * MS).await;
    assert_eq!(quorum.nodes[2].holder(), None);
    guard.release().await.unwrap();
    quorum.nodes[1].server.kill();
    let error = locks.lock("k").wait(300 * MS).acquire().await.unwrap_err();
    assert!(error.to_string().contains("appendonly no"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_info_has_no_vote_also_if_it_is_durable() {
    let mut rules = published_user();
    rules.retain(|rule| *rule != "+info");
    let (_servers, store) = with_user(&rules);
    for store in [store.clone(), store.durable()] {
        let locks = LockManager::new(store);
        let connected = locks.ping().await.unwrap_err();
        let acquired = locks.lock("k").ttl(1_000 * MS).wait(LONG).acquire().await.unwrap_err();
        for error in [connected, acquired] {
            assert!(!error.is_retryable() && error.to_string().contains("the command INFO"), "{error}");
            assert!(!error.to_string().contains("durable"), "{error}");
        }
    }
}

/// Without CONFIG, `appendfsync` cannot be seen, and is believed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_published_user_can_use_durable_nodes_and_is_warned_once_of_what_cannot_be_seen() {
    crate::watch_traces();
    let (servers, store) = with_user(&published_user());
    let locks = LockManager::new(store.durable());
    locks.ping().await.unwrap();
    // The library's own thread has connections of its own.
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    for server in &servers {
        let address = server.socket().display().to_string();
        let warnings = || {
            let all = traces::warnings_of(&address).into_iter();
            all.filter(|line| line.contains("does not show its `appendfsync`")).collect::<Vec<_>>()
        };
        until("the warning is logged", || if warnings().is_empty() { Err(()) } else { Ok(()) }).await;
        let [warning] = &warnings()[..] else { panic!("{:?}", warnings()) };
        for word in ["CONFIG", "`durable=true`", "two clients can hold one lock"] {
            assert!(warning.contains(word), "{word}: {warning}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_forbidden_fails_no_other_of_its_round_trip() {
    let mut rules = published_user();
    rules.retain(|rule| !rule.starts_with('~'));
    rules.extend(["~lock:a*", "~lock:{lock:a*"]);
    let (servers, store) = with_user(&rules);
    let locks = LockManager::new(store.durable());
    for round in 0..5 {
        let calls: Vec<_> = (0..20)
            .map(|number| {
                let name = if number == 10 { "b".to_owned() } else { format!("a{round}-{number}") };
                let lock = locks.lock(name).ttl(LONG);
                tokio::spawn(async move { lock.try_acquire().await })
            })
            .collect();
        let mut held = Vec::new();
        for (number, tried) in calls.into_iter().enumerate() {
            let tried = tried.await.unwrap();
            if number == 10 {
                let error = tried.unwrap_err();
                assert!(!error.is_retryable() && error.to_string().contains("ACL"), "{error}");
            } else {
                held.push(tried.unwrap().expect("it is free"));
            }
        }
        for guard in held {
            guard.release().await.unwrap();
        }
    }
    // What may no longer be named is lost, and nothing else.
    let others: Vec<_> = (0..20).map(|number| locks.lock(format!("a{number}")).ttl(1_500 * MS)).collect();
    let mut guards = Vec::new();
    for lock in others {
        guards.push(lock.acquire().await.unwrap());
    }
    for server in &servers {
        let allowed = (0..20)
            .filter(|number| *number != 7)
            .flat_map(|number| [format!("~lock:a{number}"), format!("~lock:{{lock:a{number}}}:*")]);
        let rules: Vec<String> =
            ["ACL", "SETUSER", "locks", "resetkeys"].map(str::to_owned).into_iter().chain(allowed).collect();
        server.command(&rules.iter().map(String::as_str).collect::<Vec<_>>());
    }
    tokio::time::sleep(3_000 * MS).await;
    for (number, guard) in guards.iter().enumerate() {
        assert_eq!(guard.is_valid(), number != 7, "{number}");
    }
}

/// No caller is asked to wait for what only an operator can change, and nothing stays behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_permission_that_is_missing_is_an_error_that_says_so() {
    for missing in published_user().into_iter().filter(|rule| rule.starts_with('+')) {
        let mut rules = published_user();
        rules.retain(|rule| *rule != missing);
        let (servers, store) = with_user(&rules);
        let locks = LockManager::new(store.durable());
        let began = Instant::now();
        let used = async {
            locks.ping().await?;
            locks.lock("k").ttl(1_000 * MS).acquire().await?.release().await
        };
        match used.await {
            // The announcement of a release, the count of waiters, and the text of a script can be done without. Others
            // are needed only by waiters and renewals.
            Ok(()) => assert!(
                [
                    "+@connection",
                    "+publish",
                    "+subscribe",
                    "+unsubscribe",
                    "+pubsub|numsub",
                    "+eval",
                    "+hdel",
                    "+pexpire",
                    "+pttl",
                    "+exists",
                ]
                .contains(&missing),
                "{missing} is not needed"
            ),
            Err(error) => {
                let text = error.to_string();
                let may_be_repeated = text.contains("the release was not confirmed");
                assert!(
                    error.is_retryable() == may_be_repeated && began.elapsed() < LONG / 4,
                    "{missing}: {error}"
                );
                assert!(text.contains("ACL") || text.contains("INFO"), "{missing}: {error}");
            }
        }
        drop(servers);
    }
}

/// The user of the documentation's `ACL SETUSER`, word for word.
pub(super) fn published_user() -> Vec<&'static str> {
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
    let end = Instant::now() + 300 * MS;
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move {
                let mut holds = 0;
                while Instant::now() < end {
                    lock.acquire().await.unwrap().release().await.unwrap();
                    holds += 1;
                }
                holds
            })
        })
        .collect();
    let mut holds = 0;
    for task in tasks {
        holds += task.await.unwrap();
    }
    // Two scripts for each tenure, which ends after 5 ms, because other clients must be assumed to wait.
    let scripts = servers[0].calls("evalsha") - before;
    assert!(scripts >= 10 && scripts < holds, "{scripts} scripts for {holds} holds");
}
