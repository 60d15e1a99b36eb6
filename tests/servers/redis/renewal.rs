//! The renewal of many holds, also next to a server or a connection that does not answer.

use std::time::{Duration, Instant};

use lock_runtime::{LockGuard, LockManager};

use super::{ALONE, hold, url};
use crate::support::{
    proxy::{Proxy, Upstream},
    redis_server::RedisServer,
};

/// The smallest remaining time of any guard within `length`; `None` if one was lost.
async fn least_remaining(guards: &[LockGuard], length: Duration) -> Option<Duration> {
    let end = Instant::now() + length;
    let mut least = Duration::MAX;
    while Instant::now() < end {
        let began = Instant::now();
        least = least.min(guards.iter().map(LockGuard::remaining).min().expect("some are held"));
        // Checking very many guards takes the time that their renewal needs.
        tokio::time::sleep(Duration::from_millis(5).max(began.elapsed() * 20)).await;
    }
    (!least.is_zero()).then_some(least)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_held_locks_are_all_renewed() {
    are_all_renewed(10_000, Duration::from_secs(12)).await;
}

/// For a release build: without optimisation two busy cores are too slow for it.
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
    // Longer than the lease of the last lock.
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
    // One hanging attempt takes a second.
    assert!(during + ttl / 16 > before, "{during:?} left of {ttl:?}, {before:?} before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_went_silent_costs_no_short_lease() {
    let server = RedisServer::start(&[]);
    let ttl = Duration::from_secs(3);
    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
    // The renewals end before the server's timeout.
    for url in ["redis://ADDRESS", "redisson://ADDRESS?response_timeout=4s"] {
        let locks = url.replace("ADDRESS", &proxy.address().to_string());
        let locks = LockManager::connect(&locks).await.unwrap();
        // Their renewals are due one after the other, so that the connection is never idle, and never checked.
        let mut guards = Vec::new();
        for number in 0..16 {
            guards.push(locks.lock(format!("user:{number}")).ttl(ttl).acquire().await.unwrap());
            tokio::time::sleep(ttl / 48).await;
        }
        // By then renewals have their connection.
        tokio::time::sleep(ttl).await;
        assert!(guards.iter().all(LockGuard::is_valid));
        proxy.black_hole();
        proxy.heal();
        tokio::time::sleep(2 * ttl).await;
        let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
        assert_eq!(lost, 0, "{url}: they were renewed over the silent connection only");
    }
}
