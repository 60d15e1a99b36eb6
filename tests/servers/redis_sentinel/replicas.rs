//! `min_replicas`: no deadline counts before the replicas have the lease.

use std::time::{Duration, Instant};

use lock_runtime::{LockErrorKind, LockGuard, LockManager};

use super::{LONG, free};
use crate::support::{
    proxy::{Flow, Proxy, Upstream, Way},
    redis_sentinel::{self, Member, RedisSet, Setup, Translated},
    resp::Value,
    until,
};

async fn connect(set: &RedisSet, number: u32) -> LockManager {
    LockManager::connect(&set.url("", &format!("?min_replicas={number}"))).await.unwrap()
}

fn pause_replicas(set: &RedisSet) {
    set.servers[1..].iter().for_each(|replica| replica.server.pause());
}

fn resume_replicas(set: &mut RedisSet) {
    set.servers[1..].iter_mut().for_each(|replica| replica.server.bring_back());
}

#[tokio::test]
async fn no_lock_is_granted_before_the_replicas_have_it() {
    let mut set = RedisSet::start(Setup::default());
    let primary = |set: &RedisSet, key: &str| set.servers[0].server.command(&["EXISTS", key]).int();
    let locks = connect(&set, 2).await;
    free(&locks, "k").await.release().await.unwrap();
    set.servers[2].server.pause();
    let refused = locks.lock("k").try_acquire().await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Backend, "{refused}");
    let text = refused.to_string();
    assert!(
        refused.is_retryable() && text.contains("only 1 of the 2") && text.contains("`min_replicas`"),
        "{text}"
    );
    // What the refused attempt took is released in the background.
    until("it is free", || if primary(&set, "lock:k") == 0 { Ok(()) } else { Err("held") }).await;
    // A caller that waits enters once the replicas are back.
    let waiting = {
        let lock = locks.lock("k").wait(LONG);
        tokio::spawn(async move { lock.acquire().await })
    };
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!waiting.is_finished());
    resume_replicas(&mut set);
    waiting.await.unwrap().unwrap().release().await.unwrap();
    locks.shutdown().await;
    super::only_the_fence_is_left(&set).await;
}

#[tokio::test]
async fn a_lock_that_is_handed_over_is_not_entered_before_the_replicas_have_it() {
    let mut set = RedisSet::start(Setup::default());
    let (ours, theirs) = (connect(&set, 1).await, connect(&set, 1).await);
    let held = free(&ours, "k").await;
    let waiting = {
        let lock = theirs.lock("k").wait(LONG);
        tokio::spawn(async move { lock.acquire().await.map(|guard| (Instant::now(), guard)) })
    };
    super::is_everywhere(&set, "lock:{lock:k}:~1:queue").await;
    pause_replicas(&set);
    let token = held.fencing_token();
    held.release().await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!waiting.is_finished(), "the waiter entered with a lease that no replica has");
    let resumed = Instant::now();
    resume_replicas(&mut set);
    let (at, guard) = waiting.await.unwrap().unwrap();
    assert!(at > resumed && guard.fencing_token() > token);
    guard.release().await.unwrap();
}

/// The option is one of `redis:`, too.
#[tokio::test]
async fn a_server_without_sentinels_has_replicas_as_well() {
    let mut set = RedisSet::start(Setup::default());
    let url = format!("redis+unix://{}?min_replicas=2", set.servers[0].server.socket().display());
    let locks = LockManager::connect(&url).await.unwrap();
    free(&locks, "k").await.release().await.unwrap();
    set.servers[2].server.pause();
    let refused = locks.lock("k").try_acquire().await.unwrap_err();
    assert!(refused.is_retryable() && refused.to_string().contains("only 1 of the 2"), "{refused}");
    resume_replicas(&mut set);
    free(&locks, "k").await.release().await.unwrap();
}

/// A waiter has been handed the lock, and no server is the primary that could confirm it.
#[tokio::test]
async fn a_confirmation_that_finds_no_primary_is_an_outage_and_no_contention() {
    let set = RedisSet::start(Setup::default());
    let primary = &set.servers[0];
    let proxy = Proxy::start(Upstream::Unix(primary.server.socket().into()));
    let at_proxy = |sentinel: &Member| Translated::start(sentinel.port, primary.port, proxy.address().port());
    let sentinels: Vec<_> = set.sentinels.iter().map(at_proxy).collect();
    let rest = "?min_replicas=1&response_timeout=20s";
    let url = redis_sentinel::url(sentinels.iter().map(Translated::port), "", rest);
    let (ours, theirs) = (connect(&set, 0).await, LockManager::connect(&url).await.unwrap());
    let waiting = loop {
        let held = free(&ours, "k").await;
        let lock = theirs.lock("k").wait(Duration::from_secs(4));
        let waiting = tokio::spawn(async move { lock.acquire().await });
        super::is_everywhere(&set, "lock:{lock:k}:~1:queue").await;
        // The message arrives, and the confirmation is sent. It reaches the server when that is a replica.
        proxy.set(Way::ToServer, Flow::Hold);
        held.release().await.unwrap();
        if primary.server.command(&["EXISTS", "lock:k"]).int() == 1 {
            break waiting;
        }
        // Not handed over: once in ten seconds, a lock is left open to other clients.
        proxy.set(Way::ToServer, Flow::Pass);
        waiting.await.unwrap().unwrap().release().await.unwrap();
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    let other = set.servers[1].port.to_string();
    primary.server.command(&["REPLICAOF", "127.0.0.1", &other]);
    proxy.set(Way::ToServer, Flow::Pass);
    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.kind() == LockErrorKind::Backend && error.is_retryable(), "{error}");
    assert!(error.to_string().contains("replica"), "{error}");
}

#[tokio::test]
async fn no_renewal_counts_before_the_replicas_have_it() {
    let mut set = RedisSet::start(Setup::default());
    let locks = connect(&set, 1).await;
    let ttl = Duration::from_secs(4);
    let kept = locks.lock("kept").ttl(ttl).acquire().await.unwrap();
    pause_replicas(&set);
    tokio::time::sleep(ttl / 2).await;
    resume_replicas(&mut set);
    tokio::time::sleep(ttl).await;
    assert!(kept.is_valid(), "the replicas were back in time");
    let lost = locks.lock("lost").ttl(ttl).acquire().await.unwrap();
    pause_replicas(&set);
    tokio::time::sleep(ttl + Duration::from_millis(500)).await;
    assert!(!lost.is_valid() && !kept.is_valid(), "renewed on the primary alone");
    resume_replicas(&mut set);
}

/// Each lock that was granted is on the only replica, however soon after the grant the primary dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_outlives_its_primary() {
    const COUNT: usize = 200;
    let mut set =
        RedisSet::start(Setup { replicas: 1, down_after: Duration::from_millis(800), ..Setup::default() });
    let locks = connect(&set, 1).await;
    let holds = hold(&locks, COUNT, LONG).await;
    set.servers[0].server.kill();
    let new = tokio::task::block_in_place(|| set.another_primary_than(0));
    let keys = set.servers[new].server.command(&["KEYS", "lock:k:*"]).texts();
    assert_eq!(keys.len(), COUNT);
    // No replica is left that could have what is written now.
    let refused = locks.lock("other").try_acquire().await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Backend, "{refused}");
    drop(holds);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_wait_confirms_many_and_a_forbidden_name_does_not_change_that() {
    const COUNT: usize = 100;
    let set = RedisSet::start(Setup { replicas: 1, ..Setup::default() });
    let waits = || set.servers[0].server.calls("wait");
    let user = |names: &str| {
        let user = format!("ACL SETUSER locks on >password resetkeys {names} &* +@all");
        assert_eq!(
            set.servers[0].server.command(&user.split(' ').collect::<Vec<_>>()),
            Value::Text("OK".into())
        );
    };
    user("~*");
    let url = set.url("locks:password@", "?min_replicas=1");
    let locks = LockManager::connect(&url).await.unwrap();
    free(&locks, "warm").await.release().await.unwrap();
    let before = waits();
    let holds = hold(&locks, COUNT, Duration::from_secs(5)).await;
    let of_grants = waits() - before;
    assert!(of_grants < 60, "{of_grants} calls of WAIT for {COUNT} grants");

    let allowed: Vec<_> =
        (0..COUNT).filter(|number| *number != 7).map(|number| format!("~lock:k:{number}")).collect();
    let before = waits();
    user(&allowed.join(" "));
    tokio::time::sleep(Duration::from_secs(6)).await;
    let valid = holds.iter().filter(|guard| guard.is_valid()).count();
    assert_eq!(valid, COUNT - 1);
    let of_renewals = waits() - before;
    println!("{of_grants} calls of WAIT for {COUNT} grants, {of_renewals} for the renewals of 6 s");
    assert!(of_renewals < 100, "{of_renewals} calls of WAIT for the renewals of {COUNT} locks");
    user("~*");
}

/// Acquires locks, many at once.
async fn hold(locks: &LockManager, count: usize, ttl: Duration) -> Vec<LockGuard> {
    let calls: Vec<_> = (0..count)
        .map(|number| {
            let lock = locks.lock(format!("k:{number}")).ttl(ttl).wait(LONG);
            tokio::spawn(async move { lock.acquire().await.unwrap() })
        })
        .collect();
    let mut holds = Vec::new();
    for call in calls {
        holds.push(call.await.unwrap());
    }
    holds
}

/// Prints the price of a confirmation; the figures on the page are from such a run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long; for figures"]
async fn the_price_of_a_confirmation() {
    let set = RedisSet::start(Setup::default());
    for number in 0..=2 {
        let locks = connect(&set, number).await;
        free(&locks, "warm").await.release().await.unwrap();
        let mut took: Vec<_> = Vec::new();
        for _ in 0..500 {
            let began = Instant::now();
            locks.lock("k").acquire().await.unwrap().release().await.unwrap();
            took.push(began.elapsed());
        }
        took.sort();
        let began = Instant::now();
        let tasks: Vec<_> = (0..64)
            .map(|task| {
                let locks = locks.clone();
                tokio::spawn(async move {
                    for _ in 0..50 {
                        locks.lock(format!("k{task}")).acquire().await.unwrap().release().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let rate = 3_200.0 / began.elapsed().as_secs_f64();
        println!("min_replicas={number}: median {:?}, p99 {:?}; 64 tasks {rate:.0}/s", took[250], took[495]);
    }
}
