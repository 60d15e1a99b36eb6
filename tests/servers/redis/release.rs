//! Late releases: after an outage, on a silent connection, and of attempts that were given up.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use lock_runtime::{LockErrorKind, LockManager, backend::redis::GroupCommit};

use super::{ALONE, LONG, connected, hold, url};
use crate::support::{
    proxy::{Flow, Proxy, Upstream, Way},
    redis_server::RedisServer,
    resp::Value,
    stopwatch::Moment,
    until,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_behind_a_connection_that_went_silent_do_not_wait_for_one_another() {
    const LIMIT: Duration = Duration::from_millis(300);
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
    let settings = "response_timeout=300ms&connect_timeout=300ms";
    let locks = connected(&format!("redis://{}?{settings}", proxy.address()), GroupCommit::Always).await;
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
    // Abandoned releases go on in the background.
    proxy.heal();
    locks.shutdown().await;
    until("only the fence is left", || match server.command(&["DBSIZE"]) {
        Value::Int(1) => Ok(()),
        size => Err(size),
    })
    .await;
}

/// A thousand guards, dropped over half a minute of three kinds of outage, each with nearly ten minutes left.
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
        let healed = Moment::now();
        until("only the fence is left", || match server.command(&["DBSIZE"]) {
            Value::Int(1) => Ok(()),
            size => Err(size),
        })
        .await;
        let took = healed.took();
        println!("{COUNT} locks are free {took:?} after {OUTAGE:?} in which calls were {outage}");
        assert!(took.within(Duration::from_millis(500)), "{outage}: only after {took:?}");
        locks.shutdown().await;
    }
}

/// A place can be granted the lock until it is stale, which is long after a lease as short as this one would have ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_given_up_in_an_outage_of_many_leases_leaves_the_queue_after_it() {
    const LEASE: Duration = Duration::from_millis(200);
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
    let holder = LockManager::connect(&url(&server, "")).await.unwrap();
    let guard = holder.lock("k").acquire().await.unwrap();
    let settings = "response_timeout=200ms&connect_timeout=200ms";
    let locks = LockManager::connect(&format!("redis://{}?{settings}", proxy.address())).await.unwrap();
    let lock = locks.lock("k").ttl(LEASE).wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await.map(drop) });
    let queue = || server.command(&["LLEN", "lock:{lock:k}:~1:queue"]);
    until("it waits", || if queue() == Value::Int(1) { Ok(()) } else { Err(()) }).await;
    proxy.black_hole();
    waiter.abort();
    tokio::time::sleep(12 * LEASE).await;
    assert_eq!(queue(), Value::Int(1));
    proxy.heal();
    let healed = Moment::now();
    until("it has left", || if queue() == Value::Int(0) { Ok(()) } else { Err(()) }).await;
    let took = healed.took();
    println!("it left {took:?} after the outage");
    assert!(took.within(Duration::from_millis(1_500)), "only after {took:?}");
    guard.release().await.unwrap();
}

/// An attempt that is given up midway is released behind its own requests, whichever group they went in, even when
/// the server had forgotten the scripts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_that_are_given_up_leave_nothing_under_any_prefix() {
    const PREFIXES: u64 = 5;
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
    let locks = connected(&format!("redis://{}", proxy.address()), GroupCommit::Always).await;
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
