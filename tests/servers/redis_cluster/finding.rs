//! How a lock's server is found, and what is said where it is not.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use lock_runtime::{
    LockErrorKind, LockManager,
    backend::{Credentials, RedisCluster as Store, ServerStatus},
};
use tokio::{net::TcpListener, runtime};
use tracing::Level;

use super::{LONG, connect, enters, free, name_at};
use crate::redis::permissions::{names_the_right, needed_at_once};
use crate::support::{
    proxy::{Proxy, Upstream},
    redis_cluster::{RedisCluster, Setup},
    redis_server::RedisServer,
    resp::Value,
    stopwatch::Moment,
    traces,
    zookeeper_server::free_port,
};

/// How often each server was asked for the table of slots.
fn questions(cluster: &RedisCluster) -> Vec<u64> {
    let living = cluster.members.iter().filter(|member| member.server().lives());
    living.map(|member| member.server().calls("cluster|slots")).collect()
}

fn one_primary(settings: &[&str]) -> RedisCluster {
    RedisCluster::start(Setup { primaries: 1, settings, ..Setup::default() })
}

#[tokio::test]
async fn one_server_is_enough_also_if_it_is_a_replica_or_others_in_the_url_are_dead_or_silent() {
    let cluster = RedisCluster::start(Setup { with_replicas: true, ..Setup::default() });
    let names = [0, 1, 2].map(|number| name_at(&cluster, &cluster.members[number], "k"));
    let seed = |number: usize| format!("127.0.0.1:{}", cluster.members[number].port);
    let dead = || format!("127.0.0.1:{}", free_port());
    let mut listeners = Vec::new();
    for _ in 0..6 {
        listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let silent: Vec<_> =
        listeners.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect();
    for (seeds, rest) in [
        (seed(1), ""),
        (seed(4), ""),
        (format!("{},{}", dead(), seed(2)), ""),
        // As the endpoint of a managed cluster.
        (seed(0).replace("127.0.0.1", "localhost"), ""),
        // More than are asked at the same time.
        (format!("{},{}", silent.join(","), seed(0)), "?connect_timeout=1s"),
    ] {
        let locks = LockManager::connect(&format!("redis-cluster://{seeds}{rest}")).await.expect(&seeds);
        for name in &names {
            free(&locks, name).await.release().await.unwrap();
        }
        assert_eq!(locks.status().servers.len(), 3);
    }
}

/// The death of one server without a replica stops no process from being started, whichever server its URL names.
#[tokio::test]
async fn a_client_connects_while_one_of_several_primaries_is_dead_or_hangs() {
    crate::watch_traces();
    for hangs in [false, true] {
        // The others go on naming the server.
        let cluster = RedisCluster::start(Setup { node_timeout: LONG, ..Setup::default() });
        let [dead, near] = [0, 1].map(|number| name_at(&cluster, &cluster.members[number], "k"));
        let url = cluster.url("", "?connect_timeout=1s");
        if hangs {
            cluster.members[0].server().pause();
        } else {
            cluster.members[0].server().kill();
        }
        let locks = LockManager::connect(&url).await.unwrap();
        locks.ping().await.unwrap();
        free(&locks, &near).await.release().await.unwrap();
        let address = format!("127.0.0.1:{}", cluster.members[0].port);
        let refused = locks.lock(&dead).try_acquire().await.unwrap_err();
        assert_eq!(refused.kind(), LockErrorKind::Backend, "{refused}");
        assert!(refused.is_retryable() && refused.to_string().contains(&address), "{refused}");
        let shown = locks.status().servers;
        let away = shown.iter().filter(|server| !server.is_reachable()).map(ServerStatus::address);
        assert_eq!(away.collect::<Vec<_>>(), [&address], "{shown:?}");
        assert_eq!(traces::outages_of(&address), [Level::WARN], "one outage");

        for member in &cluster.members[1..] {
            member.server().pause();
        }
        let error = locks.ping().await.unwrap_err();
        assert!(error.kind() == LockErrorKind::Backend && error.is_retryable(), "{error}");
        for member in &cluster.members {
            member.server().bring_back();
        }
        let waiting = enters(&locks, &dead, LONG);
        waiting.await.unwrap().1.release().await.unwrap();
        locks.ping().await.unwrap();
        // A server that refuses this client is an error, whatever the others answer.
        cluster.members[2].command(&["CONFIG", "SET", "requirepass", "canary"]);
        let error = LockManager::connect(&url).await.unwrap_err();
        assert!(!error.is_retryable(), "{error}");
    }
}

#[tokio::test]
async fn what_is_wrong_is_said_at_once_and_without_a_secret() {
    let alone = RedisServer::start(&["--port", "0"]);
    let proxy = Proxy::start(Upstream::Unix(alone.socket().into()));
    let cluster = one_primary(&[]);
    let url = cluster.url(":canary-of-servers@", "");
    cluster.members[0].command(&["CONFIG", "SET", "requirepass", "canary-of-servers"]);
    let port = cluster.members[0].port;
    for (url, word) in [
        (format!("redis-cluster://{}", proxy.address()), "is no node of a Redis Cluster"),
        (format!("redis://:canary-of-servers@127.0.0.1:{port}"), "write `redis-cluster://"),
        (format!("redis-cluster://127.0.0.1:{port}"), "credentials"),
        (format!("redis-cluster://:canary-wrong@127.0.0.1:{port}"), "user and password"),
        (format!("redis-cluster://us:canary-of-servers@127.0.0.1:{port}"), "user and password"),
    ] {
        let locks = LockManager::connect_lazy(&url).unwrap();
        let began = Moment::now();
        let refused = locks.lock("k").wait(LONG).acquire().await.unwrap_err();
        assert!(!refused.is_retryable() && began.elapsed() < LONG / 2, "{word}: {refused}");
        assert!(refused.to_string().contains(word), "{word}: {refused}");
        assert!(!format!("{refused} {refused:?}").contains("canary"), "{refused:?}");
    }
    LockManager::connect(&url).await.unwrap();
}

/// The user of the documentation, word for word.
fn published_user() -> Vec<&'static str> {
    let of = |page: &'static str| -> Vec<&'static str> {
        let (_, rest) = page.split_once("ACL SETUSER locks").expect("the page has the user");
        rest.split_once("```").expect("it ends with the block").0.split_whitespace().collect()
    };
    let redis = of(include_str!("../../../lock-runtime/src/backend/stores/redis/docs.md"));
    let cluster = of(include_str!("../../../lock-runtime/src/backend/stores/redis/cluster/docs.md"));
    redis.into_iter().chain(cluster).collect()
}

#[tokio::test]
async fn the_published_user_may_do_what_is_needed_and_each_right_is() {
    let cluster = RedisCluster::start(Setup::default());
    let allow = |user: &[&str]| {
        for member in &cluster.members {
            let answer = member.command(&[&["ACL", "SETUSER", "locks", "reset"], user].concat());
            assert_eq!(answer, Value::Text("OK".into()), "{user:?}");
        }
    };
    let url = cluster.url("locks:password@", "");
    let user = published_user();
    allow(&user);
    let (ours, theirs) =
        (LockManager::connect(&url).await.unwrap(), LockManager::connect(&url).await.unwrap());
    for number in 0..3 {
        let name = name_at(&cluster, &cluster.members[number], "k");
        let guard = ours.lock(&name).ttl(Duration::from_millis(1_500)).acquire().await.unwrap();
        let waiter = enters(&theirs, &name, LONG);
        super::queued(&cluster, &name, 1).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(guard.is_valid());
        // While the slot is moved, calls are made behind `ASKING`.
        let at = super::slot(&cluster, &name);
        let moving = cluster.begin_move(at, cluster.another(at));
        moving.carry(&format!("lock:{name}"));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(guard.is_valid());
        guard.release().await.unwrap();
        moving.end();
        waiter.await.unwrap().1.release().await.unwrap();
    }
    for forbidden in [&["CLUSTER", "FORGET", "x"][..], &["CLUSTER", "FAILOVER"], &["FLUSHALL"]] {
        let answer = cluster.members[0].command(&[&["ACL", "DRYRUN", "locks"], forbidden].concat());
        assert!(!format!("{answer:?}").contains("OK"), "{forbidden:?} is allowed");
    }
    for missing in needed_at_once(&user) {
        let rights: Vec<_> = user.iter().copied().filter(|word| *word != missing).collect();
        allow(&rights);
        let locks = LockManager::connect_lazy(&url).unwrap();
        let began = Moment::now();
        let refused = locks.lock("k").wait(LONG).acquire().await.expect_err(missing);
        assert!(began.elapsed() < LONG / 4, "{missing}: {refused}");
        names_the_right(&refused, missing);
    }
    // While a slot is moved, a holder is renewed behind `ASKING`.
    let rights: Vec<_> = user.iter().copied().filter(|word| *word != "+@connection").collect();
    allow(&rights);
    let locks = LockManager::connect(&url).await.unwrap();
    let guard = locks.lock("k").ttl(Duration::from_millis(1_500)).acquire().await.unwrap();
    let at = super::slot(&cluster, "k");
    let moving = cluster.begin_move(at, cluster.another(at));
    moving.carry("lock:k");
    let lost = guard.run(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(lost.kind(), LockErrorKind::Lost);
    assert!(lost.to_string().contains("ACL") && lost.to_string().contains("'asking'"), "{lost}");
}

#[test]
fn all_runtimes_and_callers_share_one_question() {
    const RUNTIMES: usize = 8;
    let cluster = RedisCluster::start(Setup::default());
    let before = questions(&cluster);
    let locks = LockManager::connect_lazy(&cluster.url("", "")).unwrap();
    let callers: Vec<_> = (0..RUNTIMES)
        .map(|number| {
            let locks = locks.clone();
            thread::spawn(move || {
                let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let calls = (0..8).map(|call| {
                        let lock = locks.lock(format!("k{number}:{call}")).wait(LONG);
                        tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
                    });
                    for call in calls.collect::<Vec<_>>() {
                        call.await.unwrap();
                    }
                });
            })
        })
        .collect();
    for caller in callers {
        caller.join().unwrap();
    }
    for (before, after) in before.iter().zip(questions(&cluster)) {
        assert!(after - before <= 1, "{} questions", after - before);
    }
}

/// Each caller finds that the server of its lock is away, and its slots have no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_costs_the_other_servers_a_bounded_number_of_questions() {
    let cluster = RedisCluster::start(Setup::default());
    let locks = connect(&cluster).await;
    let names: Vec<_> =
        (0..20).map(|number| name_at(&cluster, &cluster.members[0], &format!("k{number}-"))).collect();
    cluster.members[0].server().kill();
    let (before, began) = (questions(&cluster), Instant::now());
    let waiters: Vec<_> = names.iter().map(|name| enters(&locks, name, LONG)).collect();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let seconds = began.elapsed().as_secs() + 1;
    for (before, after) in before.iter().zip(questions(&cluster)) {
        let asked = after - before;
        assert!(asked <= 10 * seconds + 2, "{asked} questions in {seconds} s");
        assert!(asked > 2, "only {asked} questions");
    }
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    cluster.members[0].server().bring_back();
    for waiter in waiters {
        waiter.await.unwrap().1.release().await.unwrap();
    }
}

/// The table is read again only after 30 s.
#[tokio::test]
async fn an_acquisition_in_a_quiet_cluster_does_not_ask_for_the_table() {
    let cluster = RedisCluster::start(Setup::default());
    let locks = connect(&cluster).await;
    let guard = locks.lock("k").ttl(Duration::from_secs(1)).acquire().await.unwrap();
    let before = questions(&cluster);
    tokio::time::sleep(Duration::from_secs(3)).await;
    free(&locks, "other").await.release().await.unwrap();
    assert!(guard.is_valid());
    assert_eq!(questions(&cluster), before);
}

#[tokio::test]
async fn a_cluster_that_is_set_up_while_a_client_waits_is_used() {
    let cluster = one_primary(&[]);
    assert_eq!(cluster.members[0].command(&["CLUSTER", "FLUSHSLOTS"]), Value::Text("OK".into()));
    let locks = LockManager::connect_lazy(&cluster.url("", "")).unwrap();
    let refused = locks.lock("k").try_acquire().await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Backend);
    assert!(refused.is_retryable() && refused.to_string().contains("is the cluster set up?"), "{refused}");
    let waiter = enters(&locks, "k", LONG);
    tokio::time::sleep(Duration::from_millis(500)).await;
    cluster.members[0].command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let began = Moment::now();
    waiter.await.unwrap().1.release().await.unwrap();
    // The server needs half a second to take calls.
    assert!(began.within(Duration::from_secs(3)), "{:?}", began.took());
}

/// As behind a NAT.
#[tokio::test]
async fn servers_are_reached_where_the_url_says_and_an_address_that_leads_nowhere_is_in_the_error() {
    let cluster = RedisCluster::start(Setup::default());
    let announced: Vec<_> = cluster.members.iter().map(|_| free_port()).collect();
    for (member, port) in cluster.members.iter().zip(&announced) {
        member.command(&["CONFIG", "SET", "cluster-announce-port", &port.to_string()]);
    }
    cluster.until("the announced addresses are known", |member| {
        let Value::Text(nodes) = member.command(&["CLUSTER", "NODES"]) else { return false };
        announced.iter().all(|port| nodes.contains(&format!(":{port}@")))
    });
    let nowhere = LockManager::connect(&cluster.url("", "")).await.unwrap_err();
    let text = nowhere.to_string();
    let is_named = announced.iter().any(|port| text.contains(&format!("127.0.0.1:{port}")));
    assert!(nowhere.is_retryable() && is_named, "{text}");
    let pairs: Vec<_> = (cluster.members.iter().zip(&announced))
        .map(|(member, port)| format!("127.0.0.1:{port}=localhost:{}", member.port))
        .collect();
    let locks =
        LockManager::connect(&cluster.url("", &format!("?addresses={}", pairs.join(",")))).await.unwrap();
    for number in 0..9 {
        free(&locks, &format!("k{number}")).await.release().await.unwrap();
    }
    // A redirection names an announced address, too.
    let guard = locks.lock("k").ttl(Duration::from_secs(2)).acquire().await.unwrap();
    let at = super::slot(&cluster, "k");
    let moving = cluster.begin_move(at, cluster.another(at));
    moving.carry("lock:k");
    tokio::time::sleep(Duration::from_secs(3)).await;
    moving.end();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_cluster_is_one_store_by_whatever_seed() {
    let cluster = RedisCluster::start(Setup::default());
    let by = |number: usize| format!("redis-cluster://127.0.0.1:{}", cluster.members[number].port);
    let ours = LockManager::connect(&by(0)).await.unwrap();
    let section = async {
        let locks = LockManager::connect(&by(1)).await.unwrap();
        let error = locks.lock("k").wait(LONG).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::WouldDeadlock, "{error}");
        let other = RedisCluster::start(Setup { primaries: 1, ..Setup::default() });
        free(&connect(&other).await, "k").await.release().await.unwrap();
    };
    free(&ours, "k").await.run(section).await.unwrap();
}

#[tokio::test]
async fn locks_of_several_servers_are_acquired_in_one_call() {
    let cluster = RedisCluster::start(Setup::default());
    let (ours, theirs) = (connect(&cluster).await, connect(&cluster).await);
    let names: Vec<_> = (0..6)
        .map(|number| name_at(&cluster, &cluster.members[number % 3], &format!("k{number}-")))
        .collect();
    let guard = ours.all(&names).wait(LONG).acquire().await.unwrap();
    assert!(theirs.lock(&names[4]).try_acquire().await.unwrap().is_none());
    let refused = theirs.all(&names).wait(Duration::from_millis(300)).acquire().await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Timeout, "{refused}");
    guard.release().await.unwrap();
    theirs.all(&names).wait(LONG).acquire().await.unwrap().release().await.unwrap();
    ours.shutdown().await;
    theirs.shutdown().await;
    super::only_counters_are_left(&cluster).await;
}

#[tokio::test]
async fn each_new_connection_asks_for_the_credentials_of_the_moment() {
    let cluster = RedisCluster::start(Setup::default());
    let allow = |password: &str| {
        for member in &cluster.members {
            member.command(&[
                "ACL",
                "SETUSER",
                "locks",
                "reset",
                "on",
                &format!(">{password}"),
                "~*",
                "&*",
                "+@all",
            ]);
            member.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        }
    };
    let current = Arc::new(Mutex::new("first".to_owned()));
    allow("first");
    let provider = {
        let current = Arc::clone(&current);
        move || {
            let password = current.lock().unwrap().clone();
            async move { Ok::<_, std::io::Error>(Credentials::new("locks", password)) }
        }
    };
    let locks = LockManager::new(Store::with_credentials(&cluster.url("", ""), provider).unwrap());
    let ttl = Duration::from_secs(2);
    for password in ["second", "third"] {
        let names = [0, 1, 2].map(|number| name_at(&cluster, &cluster.members[number], password));
        let mut guards = Vec::new();
        for name in &names {
            guards.push(locks.lock(name).ttl(ttl).wait(LONG).acquire().await.unwrap());
        }
        password.clone_into(&mut current.lock().unwrap());
        allow(password);
        tokio::time::sleep(2 * ttl).await;
        for guard in guards {
            assert!(guard.is_valid(), "{password}");
            guard.release().await.unwrap();
        }
    }
    let users = cluster.members[0].command(&["CLIENT", "LIST"]).text();
    assert!(users.contains("user=locks"), "{users}");
}
