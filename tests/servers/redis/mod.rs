//! What is particular to one Redis server, and so no case of the conformance suite.

mod failover;
mod formats;
mod published;
mod queue;
mod stalls;

use std::{
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use lock_runtime::{LockErrorKind, LockGuard, LockManager};

use tokio::sync::Mutex;

use crate::support::{
    proxy::{Flow, Proxy, Upstream, Way},
    redis_server::RedisServer,
    resp::Value,
    until,
};

const LONG: Duration = Duration::from_secs(20);

fn url(server: &RedisServer, rest: &str) -> String {
    format!("redis+unix://{}{rest}", server.socket().display())
}

/// The user of the documentation's `ACL SETUSER`, word for word.
fn published_user() -> Vec<&'static str> {
    let page = include_str!("../../../lock-runtime/src/backend/redis/docs.md");
    let (_, rest) = page.split_once("ACL SETUSER ").expect("the page has the user");
    rest.split_once("```").expect("it ends with the block").0.split_whitespace().collect()
}

#[tokio::test]
async fn the_published_user_can_do_what_locks_need_and_nothing_else() {
    let server = RedisServer::start(&[&["--user"], &published_user()[..]].concat());
    let url = url(&server, "?user=locks&pass=password");
    let (ours, theirs) =
        (LockManager::connect(&url).await.unwrap(), LockManager::connect(&url).await.unwrap());
    // Held past its first lease, wanted by another, handed over, given up.
    let lock = ours.lock("user:42").ttl(Duration::from_millis(1500));
    let guard = lock.acquire().await.unwrap();
    let waiter = {
        let lock = theirs.lock("user:42").wait(LONG);
        tokio::spawn(async move { lock.acquire().await })
    };
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(guard.is_valid());
    assert!(theirs.lock("user:42").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    let given_up = ours.lock("user:42").wait(Duration::from_millis(200)).acquire().await.unwrap_err();
    assert_eq!(given_up.kind(), LockErrorKind::Timeout);
    guard.release().await.unwrap();
    // Many at once go in groups.
    let many: Vec<_> = (0..50)
        .map(|number| {
            let lock = ours.lock(format!("user:{number}")).wait(LONG);
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await })
        })
        .collect();
    for one in many {
        one.await.unwrap().unwrap();
    }
    ours.shutdown().await;
    theirs.shutdown().await;
    until("nothing but the fence is left", || match server.command(&["KEYS", "*"]) {
        Value::Array(keys) if keys.len() == 1 => Ok(()),
        keys => Err(keys),
    })
    .await;
    for forbidden in [
        &["SET", "user:42", "x"][..],
        &["GET", "other:1"],
        &["FLUSHALL"],
        &["KEYS", "*"],
        &["CONFIG", "GET", "*"],
        &["PUBLISH", "news", "x"],
    ] {
        let answer = server.command(&[&["ACL", "DRYRUN", "locks"], forbidden].concat());
        assert!(!format!("{answer:?}").contains("OK"), "{forbidden:?} is allowed");
    }
}

#[tokio::test]
async fn a_user_that_may_not_do_what_locks_need_is_told_so_before_anything_is_written() {
    for (right, without, named) in [
        ("+publish", "-publish", "PUBLISH"),
        ("&lock:*", "&other:*", "the channels under the prefix `lock:`"),
        ("+rpush", "-rpush", "RPUSH"),
    ] {
        let mut user = published_user();
        *user.iter_mut().find(|word| **word == right).expect(right) = without;
        let server = RedisServer::start(&[&["--user"], &user[..]].concat());
        let locks = LockManager::connect(&url(&server, "?user=locks&pass=password")).await.unwrap();
        for wait in [Duration::ZERO, LONG] {
            let began = Instant::now();
            let refused = locks.lock("user:42").wait(wait).acquire().await.expect_err(without);
            assert_eq!(refused.kind(), LockErrorKind::Backend);
            assert!(!refused.is_retryable() && began.elapsed() < LONG / 4, "it stays refused: {refused}");
            let text = refused.to_string();
            assert!(text.contains("ACL") && !text.contains("password"), "{text}");
            assert!(text.contains(named), "{text}");
        }
        assert!(matches!(server.command(&["KEYS", "*"]), Value::Array(keys) if keys.is_empty()));
    }
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
    // Whatever has arrived by now is all that the new primary knows.
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

/// For tests that keep many locks: all that are held in a process are renewed by one of its threads.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Takes as many locks as that, many at once.
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

/// The least that any of them had left, at any time within `length`; none when one was lost.
async fn least_remaining(guards: &[LockGuard], length: Duration) -> Option<Duration> {
    let end = Instant::now() + length;
    let mut least = Duration::MAX;
    while Instant::now() < end {
        let began = Instant::now();
        least = least.min(guards.iter().map(LockGuard::remaining).min().expect("some are held"));
        // To look at very many takes the time that their renewal needs.
        tokio::time::sleep(Duration::from_millis(5).max(began.elapsed() * 20)).await;
    }
    (!least.is_zero()).then_some(least)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_held_locks_are_all_renewed() {
    are_all_renewed(10_000, Duration::from_secs(12)).await;
}

/// For a release build: without optimisation two cores that are busy with other things are too slow for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long; `tests/run all` runs it"]
async fn a_hundred_thousand_held_locks_are_all_renewed() {
    are_all_renewed(100_000, Duration::from_secs(30)).await;
}

async fn are_all_renewed(count: usize, ttl: Duration) {
    let _alone = ALONE.lock().await;
    let server = RedisServer::start(&[]);
    let locks = LockManager::connect(&url(&server, "")).await.unwrap();
    let began = Instant::now();
    let guards = hold(&locks, count, ttl).await;
    let taken = began.elapsed();
    // Longer than the lease of the last of them.
    let least = least_remaining(&guards, ttl + Duration::from_secs(1)).await;
    println!("{count} locks taken in {taken:?}, renewed with at least {least:?} of {ttl:?} left");
    assert!(least.is_some(), "{} of them were lost", guards.iter().filter(|guard| !guard.is_valid()).count());
    let keys = |server: &RedisServer| server.command(&["DBSIZE"]).int();
    assert_eq!(keys(&server), i64::try_from(count).unwrap() + 1, "with the fence");
    drop(guards);
    locks.shutdown().await;
    assert_eq!(keys(&server), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_delays_no_renewal_on_another() {
    let _alone = ALONE.lock().await;
    let servers = [RedisServer::start(&[]), RedisServer::start(&[])];
    let ttl = Duration::from_secs(8);
    let mut held = Vec::new();
    for server in &servers {
        let locks = LockManager::connect(&url(server, "")).await.unwrap();
        held.push(hold(&locks, 1000, ttl).await);
    }
    let [stalled, other] = &held[..] else { unreachable!("two") };
    let before = least_remaining(other, ttl).await.expect("nothing is wrong yet");
    servers[0].pause();
    let during = least_remaining(other, ttl).await.expect("none of the others is lost");
    println!("at least {before:?} of {ttl:?} left, {during:?} while the other server stood still");
    assert!(stalled.iter().all(|guard| !guard.is_valid()), "its lease cannot have been renewed");
    // One attempt that hangs takes a second.
    assert!(during + ttl / 16 > before, "{during:?} left of {ttl:?}, {before:?} before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_behind_a_connection_that_went_silent_do_not_wait_for_one_another() {
    const LIMIT: Duration = Duration::from_millis(300);
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
    let settings = "group_commit=always&response_timeout=300ms&connect_timeout=300ms";
    let locks = LockManager::connect(&format!("redis://{}?{settings}", proxy.address())).await.unwrap();
    // 24 groups.
    let guards: Vec<_> = (0..3_072)
        .map(|number| {
            let lock = locks.lock(format!("user:{number}")).wait(LONG);
            tokio::spawn(async move { lock.acquire().await.unwrap() })
        })
        .collect();
    let mut held = Vec::new();
    for guard in guards {
        held.push(guard.await.unwrap());
    }
    proxy.black_hole();
    let began = Instant::now();
    let releases: Vec<_> = held.into_iter().map(|guard| tokio::spawn(guard.release())).collect();
    for release in releases {
        assert_eq!(release.await.unwrap().unwrap_err().kind(), LockErrorKind::Backend);
    }
    let took = began.elapsed();
    assert!(took < 12 * LIMIT, "{took:?}");
    // What was given up goes on in the background.
    proxy.heal();
    locks.shutdown().await;
    until("only the fence is left", || match server.command(&["DBSIZE"]) {
        Value::Int(1) => Ok(()),
        size => Err(size),
    })
    .await;
}

/// A thousand guards, dropped over half a minute of three kinds of outage, each with most of ten minutes left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long; `tests/run all` runs it"]
async fn what_was_dropped_in_a_long_outage_is_free_half_a_second_after_it() {
    const COUNT: usize = 1_000;
    const OUTAGE: Duration = Duration::from_secs(30);
    let _alone = ALONE.lock().await;
    for outage in ["refused", "swallowed", "stopped"] {
        let mut server = RedisServer::start(&[]);
        let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
        let locks = LockManager::connect(&format!("redis://{}", proxy.address())).await.unwrap();
        let guards = hold(&locks, COUNT, Duration::from_mins(10)).await;
        match outage {
            "refused" => {
                proxy.refuse();
                proxy.reset();
            }
            "swallowed" => proxy.black_hole(),
            _ => server.pause(),
        }
        let began = Instant::now();
        for (number, guard) in (0..).zip(guards) {
            drop(guard);
            tokio::time::sleep_until((began + OUTAGE / 1_000 * number).into()).await;
        }
        proxy.heal();
        server.bring_back();
        let healed = Instant::now();
        until("only the fence is left", || match server.command(&["DBSIZE"]) {
            Value::Int(1) => Ok(()),
            size => Err(size),
        })
        .await;
        let took = healed.elapsed();
        println!("{COUNT} locks are free {took:?} after {OUTAGE:?} in which calls were {outage}");
        assert!(took < Duration::from_millis(500), "{outage}: only after {took:?}");
        locks.shutdown().await;
    }
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

/// A user of these names and channels, and of the commands that locks need.
fn narrow_user(name: &str, allowed: &[&str]) -> Vec<String> {
    let mut user = vec!["--user", name, "on", ">password"];
    user.extend(allowed);
    user.extend(published_user().into_iter().filter(|word| word.starts_with(['+', '-'])));
    user.into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_name_that_is_forbidden_fails_no_other_of_its_round_trip() {
    let allowed = ["~lock:a*", "~lock:{lock:a*", "~lock:~1:*", "&lock:~1:*"];
    let user = narrow_user("narrow", &allowed);
    let server = RedisServer::start(&user.iter().map(String::as_str).collect::<Vec<_>>());
    let locks = LockManager::connect(&url(&server, "?user=narrow&pass=password")).await.unwrap();
    for round in 0..10 {
        let calls: Vec<_> = (0..20)
            .map(|number| {
                let name = if number == 10 { "b".to_owned() } else { format!("a{round}-{number}") };
                let lock = locks.lock(name);
                tokio::spawn(async move { lock.try_acquire().await })
            })
            .collect();
        for (number, tried) in calls.into_iter().enumerate() {
            let tried = tried.await.unwrap();
            if number == 10 {
                assert_eq!(tried.unwrap_err().kind(), LockErrorKind::Backend);
            } else {
                assert!(tried.unwrap().is_some(), "{number} of round {round}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_many_lengths_share_a_round_trip() {
    const DELAY: Duration = Duration::from_millis(5);
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
    let locks =
        LockManager::connect(&format!("redis://{}?group_commit=always", proxy.address())).await.unwrap();
    locks.lock("warm").acquire().await.unwrap().release().await.unwrap();
    proxy.set(Way::ToServer, Flow::Delay(DELAY));
    let began = Instant::now();
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
    let took = began.elapsed();
    // One after the other they would need 256 round trips.
    assert!(took < 100 * DELAY, "{took:?}");
    drop(guards);
    locks.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_went_silent_costs_no_short_lease() {
    let server = RedisServer::start(&[]);
    let ttl = Duration::from_millis(1500);
    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
    let locks = LockManager::connect(&format!("redis://{}", proxy.address())).await.unwrap();
    let guard = locks.lock("user:42").ttl(ttl).acquire().await.unwrap();
    // Then renewals have their connection.
    tokio::time::sleep(ttl).await;
    assert!(guard.is_valid());
    proxy.black_hole();
    proxy.heal();
    tokio::time::sleep(2 * ttl).await;
    assert!(guard.is_valid(), "it was renewed over the silent connection only");
}

#[tokio::test]
async fn a_right_that_is_taken_away_under_one_prefix_ends_no_lease_under_another() {
    let user = narrow_user("two", &["~a:*", "~b:*", "&a:*", "&b:*"]);
    let server = RedisServer::start(&user.iter().map(String::as_str).collect::<Vec<_>>());
    let locks = LockManager::connect(&url(&server, "?user=two&pass=password")).await.unwrap();
    let ttl = Duration::from_secs(2);
    let (a, b) = (locks.clone().with_prefix("a:").unwrap(), locks.with_prefix("b:").unwrap());
    let kept = a.lock("x").ttl(ttl).acquire().await.unwrap();
    let lost = b.lock("x").ttl(ttl).acquire().await.unwrap();
    server.command(&["ACL", "SETUSER", "two", "resetkeys", "~a:*"]);
    tokio::time::sleep(2 * ttl).await;
    assert!(kept.is_valid());
    assert!(!lost.is_valid());
}

#[tokio::test]
async fn a_user_of_no_more_names_than_locks_need_is_enough() {
    let allowed = ["~lock:user:*", "~lock:{lock:user:*", "~lock:~1:fence", "&lock:~1:inbox:*"];
    let user = narrow_user("least", &allowed);
    let server = RedisServer::start(&user.iter().map(String::as_str).collect::<Vec<_>>());
    let locks = LockManager::connect(&url(&server, "?user=least&pass=password")).await.unwrap();
    let guard = locks.lock("user:42").acquire().await.unwrap();
    let waiter = {
        let other = LockManager::connect(&url(&server, "?user=least&pass=password")).await.unwrap();
        tokio::spawn(async move { other.lock("user:42").wait(LONG).acquire().await.unwrap().release().await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap();
}

/// What is given up in the middle is released behind what was sent of it, in whichever group that went, also when the
/// server had forgotten the scripts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_that_are_given_up_leave_nothing_under_any_prefix() {
    const PREFIXES: u64 = 5;
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
    let locks =
        LockManager::connect(&format!("redis://{}?group_commit=always", proxy.address())).await.unwrap();
    let managers: Vec<_> =
        (0..PREFIXES).map(|number| locks.clone().with_prefix(&format!("p{number}:")).unwrap()).collect();
    for manager in &managers {
        manager.lock("warm").acquire().await.unwrap().release().await.unwrap();
    }
    proxy.set(Way::ToServer, Flow::Delay(Duration::from_millis(2)));
    let (given_up, granted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..64_u64)
        .map(|task| {
            let locks = managers[usize::try_from(task % PREFIXES).unwrap()].clone();
            let (given_up, granted) = (Arc::clone(&given_up), Arc::clone(&granted));
            tokio::spawn(async move {
                for round in 0..60 {
                    let patience = if round % 4 == 0 {
                        LONG
                    } else {
                        Duration::from_micros((task * 37 + round * 911) % 20_000)
                    };
                    let lock = locks.lock(format!("{task}:{round}")).ttl(LONG);
                    match tokio::time::timeout(patience, lock.acquire()).await {
                        Ok(guard) => {
                            granted.fetch_add(1, Ordering::Relaxed);
                            drop(guard.unwrap());
                        }
                        Err(_) => _ = given_up.fetch_add(1, Ordering::Relaxed),
                    }
                }
            })
        })
        .collect();
    while tasks.iter().any(|task| !task.is_finished()) {
        server.command(&["SCRIPT", "FLUSH"]);
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    let (given_up, granted) = (given_up.load(Ordering::Relaxed), granted.load(Ordering::Relaxed));
    println!("{given_up} given up, {granted} granted");
    assert!(given_up > 500 && granted > 500, "{given_up} given up, {granted} granted");
    proxy.heal();
    locks.shutdown().await;
    until("only the fences are left", || match server.command(&["KEYS", "*"]) {
        Value::Array(keys) if keys.len() == usize::try_from(PREFIXES).unwrap() => Ok(()),
        keys => Err(keys),
    })
    .await;
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
        ("lock:user:7", LockErrorKind::InvalidKey, "is no lock"),
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
