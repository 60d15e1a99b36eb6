//! Failovers: commanded, after a death, and of a primary that goes on answering.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use lock_runtime::{LockErrorKind, LockManager};
use tracing::Level;

use super::{LONG, connect, free, is_everywhere, only_the_fence_is_left};
use crate::support::{
    history::{self, Hold},
    monotonic,
    redis_sentinel::{RedisSet, Setup},
    stopwatch::Moment,
    traces, until,
};

/// `down-after-milliseconds` of the Sentinels that are to act by themselves.
const DOWN_AFTER: Duration = Duration::from_millis(800);

#[tokio::test]
async fn what_is_held_is_kept_through_a_commanded_failover_and_who_waits_enters() {
    let set = RedisSet::start(Setup::default());
    let (ours, theirs) = (connect(&set).await, connect(&set).await);
    let ttl = Duration::from_secs(6);
    let held = ours.lock("held").ttl(ttl).acquire().await.unwrap();
    let wanted = ours.lock("wanted").ttl(ttl).acquire().await.unwrap();
    let first = wanted.fencing_token();
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let lock = theirs.lock("wanted").ttl(ttl).wait(LONG);
            tokio::spawn(async move {
                let guard = lock.acquire().await?;
                let token = guard.fencing_token();
                guard.release().await.map(|()| token)
            })
        })
        .collect();
    is_everywhere(&set, "lock:held").await;
    is_everywhere(&set, "lock:{lock:wanted}:~1:queue").await;

    let old = set.primary_number();
    let new = set.fail_over();
    // The library has left the old primary even before a caller needs the new one.
    let lock = ours.lock("new").wait(LONG);
    let began = Instant::now();
    drop(lock.acquire().await.unwrap());
    println!("the first lock on the new primary took {:?}", began.elapsed());
    wanted.release().await.unwrap();
    let mut last = first;
    for waiter in waiters {
        let token = waiter.await.unwrap().unwrap();
        assert!(token > first, "{token:?} after {first:?}");
        last = last.max(token);
    }
    tokio::time::sleep(2 * ttl).await;
    assert!(held.is_valid(), "it was renewed on the old primary only");
    assert_eq!(set.servers[new].server.command(&["EXISTS", "lock:held"]).int(), 1);
    held.release().await.unwrap();
    assert!(free(&theirs, "wanted").await.fencing_token() > last);
    ours.shutdown().await;
    theirs.shutdown().await;
    assert_ne!(old, new);
    only_the_fence_is_left(&set).await;
}

#[tokio::test]
async fn a_primary_that_dies_is_replaced_and_who_waits_enters() {
    crate::watch_traces();
    let mut set = RedisSet::start(Setup { down_after: DOWN_AFTER, ..Setup::default() });
    let (ours, theirs) = (connect(&set).await, connect(&set).await);
    let ttl = Duration::from_secs(20);
    let held = ours.lock("held").ttl(ttl).acquire().await.unwrap();
    let wanted = ours.lock("wanted").ttl(ttl).acquire().await.unwrap();
    let waiter = {
        let lock = theirs.lock("wanted").wait(LONG);
        tokio::spawn(async move { lock.acquire().await.map(|guard| (Instant::now(), guard)) })
    };
    is_everywhere(&set, "lock:held").await;
    is_everywhere(&set, "lock:{lock:wanted}:~1:queue").await;

    let old = set.primary_number();
    set.servers[old].server.kill();
    // A single attempt is refused as an outage until the new primary is there.
    let refused = theirs.lock("other").try_acquire().await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Backend, "{refused}");
    assert!(refused.is_retryable(), "{refused}");
    set.another_primary_than(old);
    let named = Instant::now();
    let first = wanted.fencing_token();
    // A release that does not find the new primary at once is repeated in the background.
    drop(wanted);
    let (at, entered) = waiter.await.unwrap().unwrap();
    println!("the waiter entered {:?} after all Sentinels named the new primary", at.duration_since(named));
    assert!(at < named + Duration::from_secs(5), "{:?}", at.duration_since(named));
    assert!(entered.fencing_token() > first);
    assert!(held.is_valid());
    entered.release().await.unwrap();
    held.release().await.unwrap();
    ours.shutdown().await;
    theirs.shutdown().await;
    only_the_fence_is_left(&set).await;
    // Each of the two managers logs the outage once.
    let url = set.url("", "");
    let address = url.split_once("//").unwrap().1;
    let told = traces::outages_of(address);
    let begun = told.iter().filter(|level| **level == Level::WARN).count();
    assert!(told.len() == 2 * begun && (1..=2).contains(&begun), "{told:?}");
}

/// The Sentinels lose sight of the primary, which goes on answering its clients and accepts their writes.
#[tokio::test]
async fn a_replaced_primary_that_goes_on_answering_gets_no_further_call() {
    let set = RedisSet::start(Setup { down_after: DOWN_AFTER, ..Setup::default() });
    let locks = connect(&set).await;
    let held = locks.lock("held").ttl(Duration::from_secs(3)).acquire().await.unwrap();
    // Not renewed before its release.
    let idle = locks.lock("idle").ttl(LONG).acquire().await.unwrap();
    is_everywhere(&set, "lock:held").await;
    is_everywhere(&set, "lock:idle").await;
    let old = set.primary_number();
    let cut_off = &set.servers[old].server;
    // The library sends no PING.
    cut_off.command(&["ACL", "SETUSER", "default", "-ping"]);
    let new = set.another_primary_than(old);
    assert!(set.servers[old].reports("role:master"), "it was not cut off");

    // Nothing tells the library of it but the Sentinels: no call fails. The next renewal goes to the new primary.
    until("the new primary is used", || match set.servers[new].server.calls("evalsha") {
        0 => Err("no call"),
        _ => Ok(()),
    })
    .await;
    let before = cut_off.calls("evalsha");
    idle.release().await.unwrap();
    assert_eq!(set.servers[new].server.command(&["EXISTS", "lock:idle"]).int(), 0);
    for number in 0..20 {
        free(&locks, &format!("k{number}")).await.release().await.unwrap();
    }
    // Long enough for several renewals.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(cut_off.calls("evalsha"), before, "calls to a primary that was replaced");
    assert!(held.is_valid());
    assert_eq!(set.servers[new].server.command(&["EXISTS", "lock:held"]).int(), 1);
    held.release().await.unwrap();
    locks.shutdown().await;
}

/// A failover as the page of the topologies says to lose nothing, and a `response_timeout` longer than it takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_loses_no_lock_and_fails_no_single_attempt() {
    let set = Arc::new(RedisSet::start(Setup::default()));
    let url = set.url("", "?response_timeout=10s");
    let [ours, theirs] =
        [LockManager::connect(&url).await.unwrap(), LockManager::connect(&url).await.unwrap()];
    // Renewed in each of the failovers.
    let held = ours.lock("held").ttl(Duration::from_secs(5)).acquire().await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..4)
        .map(|number| {
            let (locks, url, stop) = (theirs.clone(), url.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let (name, mut last, mut longest) = (format!("k{number}"), None, Duration::ZERO);
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let guard = locks.lock(&name).try_acquire().await.unwrap().expect("each has its own");
                    let token = Some(guard.fencing_token());
                    assert!(token > last, "{token:?} after {last:?}");
                    last = token;
                    guard.release().await.unwrap();
                    longest = longest.max(began.elapsed());
                    LockManager::connect(&url).await.unwrap().shutdown().await;
                }
                longest
            })
        })
        .collect();
    for _ in 0..2 {
        let mut clients = Vec::new();
        for _ in 0..20 {
            clients.push(LockManager::connect(&url).await.unwrap());
        }
        // Some of the waits end while there is no primary. Each client has a place of its own.
        let waits = clients.iter().zip(10..).map(|(client, tenths)| {
            let lock = client.lock("held").wait(Duration::from_millis(100 * tenths));
            tokio::spawn(async move { lock.acquire().await.map(drop).unwrap_err() })
        });
        let waiters: Vec<_> = waits.collect();
        let queue = "lock:{lock:held}:~1:queue";
        until("all wait", || match set.primary().server.command(&["LLEN", queue]).int() {
            20 => Ok(()),
            other => Err(other),
        })
        .await;
        let set = Arc::clone(&set);
        tokio::task::spawn_blocking(move || set.fail_over_losing_nothing()).await.unwrap();
        for waiter in waiters {
            let error = waiter.await.unwrap();
            assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
        }
        assert!(held.is_valid());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        let longest = task.await.unwrap();
        println!("at most {longest:?}");
        // The writes waited, so the failovers were met.
        assert!(longest > Duration::from_millis(200), "{longest:?}");
    }
    assert!(held.is_valid());
    held.release().await.unwrap();
    ours.shutdown().await;
    theirs.shutdown().await;
    only_the_fence_is_left(&set).await;
}

/// The replica that becomes the primary does not have one of the locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_a_failover_loses_is_lost_and_its_holder_is_told() {
    let mut set = RedisSet::start(Setup { replicas: 1, down_after: DOWN_AFTER, ..Setup::default() });
    let (ours, theirs) = (connect(&set).await, connect(&set).await);
    let ttl = Duration::from_secs(12);
    let kept = ours.lock("kept").ttl(ttl).acquire().await.unwrap();
    let lost = ours.lock("lost").ttl(ttl).acquire().await.unwrap();
    is_everywhere(&set, "lock:kept").await;
    is_everywhere(&set, "lock:lost").await;
    for words in [&["CONFIG", "SET", "replica-read-only", "no"][..], &["DEL", "lock:lost"]] {
        set.servers[1].server.command(words);
    }
    set.servers[0].server.kill();
    tokio::time::timeout(LONG, lost.lost()).await.expect("the holder is told");
    kept.ensure_valid().unwrap();
    assert!(!lost.is_valid());
    let next = free(&theirs, "lost").await;
    assert!(next.fencing_token() > lost.fencing_token());
    assert_eq!(lost.release().await.unwrap_err().kind(), LockErrorKind::Lost);
    assert!(next.is_valid());
    next.release().await.unwrap();
    kept.release().await.unwrap();
}

/// The Sentinels name a server that is a replica, and go on doing so.
#[tokio::test]
async fn a_set_without_a_primary_for_long_is_an_outage_and_no_contention() {
    let set = RedisSet::start(Setup::default());
    let limit = Duration::from_millis(500);
    let held = connect(&set).await.lock("held").ttl(LONG).acquire().await.unwrap();
    let locks = LockManager::connect(&set.url("", "?response_timeout=500ms")).await.unwrap();
    let waiting = {
        let lock = locks.lock("held").wait(8 * limit);
        tokio::spawn(async move { lock.acquire().await.unwrap_err() })
    };
    is_everywhere(&set, "lock:{lock:held}:~1:queue").await;
    let other = set.servers[1].port.to_string();
    set.primary().server.command(&["REPLICAOF", "127.0.0.1", &other]);
    let began = Moment::now();
    let single = locks.lock("other").try_acquire().await.unwrap_err();
    assert!(began.took().real >= limit && began.within(3 * limit), "made again for {:?}", began.took());
    for error in [single, waiting.await.unwrap()] {
        assert!(error.kind() == LockErrorKind::Backend && error.is_retryable(), "{error}");
        assert!(error.to_string().contains("replica"), "{error}");
    }
    drop(held);
}

/// Writes may be lost by such failovers, so two holders may overlap, which is counted. Tokens rise all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_and_nothing_is_left_after_failovers_under_load() {
    const NAMES: usize = 4;
    let set = RedisSet::start(Setup::default());
    let histories: Arc<[Mutex<Vec<Hold>>]> = (0..NAMES).map(|_| Mutex::default()).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let (mut tasks, mut managers) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let locks = connect(&set).await;
        for task in 0..8 {
            let (locks, histories, stop) = (locks.clone(), Arc::clone(&histories), Arc::clone(&stop));
            tasks.push(tokio::spawn(async move {
                let (mut failures, name) = (0, task % NAMES);
                while !stop.load(Ordering::Relaxed) {
                    let lock = locks.lock(format!("k{name}")).ttl(Duration::from_secs(2)).wait(LONG);
                    let asked = monotonic();
                    let guard = match lock.acquire().await {
                        Ok(guard) => guard,
                        Err(error) => {
                            assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
                            failures += 1;
                            continue;
                        }
                    };
                    let from = monotonic();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    let until = if guard.is_valid() { monotonic() } else { from };
                    let token = guard.fencing_token().get();
                    histories[name].lock().unwrap().push(Hold { token, asked, from, until });
                    drop(guard);
                }
                failures
            }));
        }
        managers.push(locks);
    }
    let entries = || histories.iter().map(|history| history.lock().unwrap().len()).sum::<usize>();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        tokio::task::block_in_place(|| set.fail_over());
        let before = entries();
        until("sections go on", || match entries() {
            now if now > before + 4 * NAMES => Ok(()),
            now => Err(now),
        })
        .await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut failures = 0;
    for task in tasks {
        failures += task.await.unwrap();
    }
    for locks in managers {
        locks.shutdown().await;
    }
    let verdicts: Vec<_> =
        histories.iter().map(|history| history::judge(history.lock().unwrap().clone())).collect();
    println!("{failures} failed calls, {verdicts:?}");
    assert!(
        verdicts.iter().all(|verdict| verdict.duplicates == 0 && verdict.inversions == 0),
        "{verdicts:?}"
    );
    only_the_fence_is_left(&set).await;
}
