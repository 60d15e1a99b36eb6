//! Primaries that die, are replaced, or do not answer.

use std::time::{Duration, Instant};

use lock_runtime::{LockErrorKind, LockGuard, LockManager};

use super::{
    AT_ONCE, LONG, behind_proxies, connect, enters, free, name_at, only_counters_are_left, queued, slot,
    under_load,
};
use crate::support::{
    redis_cluster::{RedisCluster, Setup},
    resp::Value,
    stopwatch::Moment,
    until,
};

/// Time without an answer after which the servers take another one for dead.
const NODE_TIMEOUT: Duration = Duration::from_millis(800);

fn with_replicas() -> Setup<'static> {
    Setup { with_replicas: true, node_timeout: NODE_TIMEOUT, ..Setup::default() }
}

/// Waits until a key has arrived at the replica of a primary.
async fn is_replicated(cluster: &RedisCluster, primary: usize, key: &str) {
    let replica = &cluster.members[3 + primary];
    until(key, || if replica.command(&["KEYS", key]).texts().is_empty() { Err("not yet") } else { Ok(()) })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_death_of_a_primary_touches_no_lock_of_another_and_who_waits_enters() {
    let cluster = RedisCluster::start(with_replicas());
    let (ours, theirs) = (connect(&cluster).await, connect(&cluster).await);
    let [held, wanted, other] =
        ["held", "wanted", "other"].map(|name| name_at(&cluster, &cluster.members[0], name));
    let guard = ours.lock(&held).ttl(Duration::from_secs(20)).acquire().await.unwrap();
    let first = ours.lock(&wanted).ttl(Duration::from_secs(20)).acquire().await.unwrap();
    let token = first.fencing_token();
    let waiter = enters(&theirs, &wanted, LONG);
    queued(&cluster, &wanted, 1).await;
    is_replicated(&cluster, 0, &format!("lock:{held}")).await;
    is_replicated(&cluster, 0, &format!("*{wanted}*:queue")).await;
    // Renewed twice a second: a renewal that waited for the dead server would lose it.
    let ttl = Duration::from_millis(1_500);
    let mut elsewhere = Vec::new();
    for number in 1..3 {
        let name = name_at(&cluster, &cluster.members[number], "kept");
        elsewhere.push(ours.lock(name).ttl(ttl).acquire().await.unwrap());
    }

    cluster.members[0].server().kill();
    let died = Instant::now();
    // A single attempt is refused as an outage until the new primary is there.
    let refused = theirs.lock(&other).try_acquire().await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Backend, "{refused}");
    assert!(refused.is_retryable(), "{refused}");
    drop(first);
    let near = name_at(&cluster, &cluster.members[1], "near");
    while !waiter.is_finished() {
        let began = Moment::now();
        ours.lock(&near).try_acquire().await.unwrap().unwrap().release().await.unwrap();
        assert!(began.within(AT_ONCE), "{:?}", began.took());
        assert!(elsewhere.iter().all(LockGuard::is_valid), "a lock of another server was lost");
        assert!(died.elapsed() < LONG);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (at, entered) = waiter.await.unwrap();
    println!("the waiter entered {:?} after the death", at - died);
    assert!(entered.fencing_token() > token);
    cluster.promoted(&cluster.members[3]);
    // The servers take about a second for the election.
    assert!(at < died + NODE_TIMEOUT + Duration::from_secs(6), "{:?}", at - died);
    assert!(guard.is_valid());
    tokio::time::sleep(2 * ttl).await;
    assert!(elsewhere.iter().all(LockGuard::is_valid));
    guard.release().await.unwrap();
    entered.release().await.unwrap();
    drop(elsewhere);
    ours.shutdown().await;
    theirs.shutdown().await;
    only_counters_are_left(&cluster).await;
}

/// The primary stops and hands its writes over first, so nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_hold_a_lock_while_primaries_are_replaced_by_command() {
    let cluster = RedisCluster::start(with_replicas());
    let names: Vec<_> = (0..6).map(|number| name_at(&cluster, &cluster.members[number % 3], "k")).collect();
    let keeper = connect(&cluster).await;
    let mut held = Vec::new();
    for number in 0..3 {
        let name = name_at(&cluster, &cluster.members[number], "held");
        held.push(keeper.lock(name).ttl(Duration::from_secs(4)).acquire().await.unwrap());
    }
    let outcome = under_load(&cluster.url("", ""), &names, async || {
        for number in [0, 1, 2] {
            tokio::time::sleep(Duration::from_millis(700)).await;
            tokio::task::block_in_place(|| cluster.fail_over(&cluster.members[3 + number]));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    })
    .await;
    println!("{} failed calls, {:?}", outcome.failures.len(), outcome.verdicts);
    for verdict in &outcome.verdicts {
        assert!(verdict.holds > 20, "{verdict:?} {:?}", outcome.failures);
        assert_eq!((verdict.overlaps, verdict.duplicates, verdict.inversions), (0, 0, 0), "{verdict:?}");
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(held.iter().all(LockGuard::is_valid));
    for guard in held {
        guard.release().await.unwrap();
    }
    // The old primaries are replicas, which no client counts among its servers.
    let shown: Vec<_> = keeper.status().servers.iter().map(|server| server.address().to_owned()).collect();
    assert_eq!(shown.len(), 3, "{shown:?}");
    for new in &cluster.members[3..] {
        assert!(shown.contains(&format!("127.0.0.1:{}", new.port)), "{shown:?}");
    }
    assert!(keeper.status().is_reachable());
    keeper.shutdown().await;
    only_counters_are_left(&cluster).await;
}

/// Writes that the dead primary had confirmed may be lost, so two holders may overlap, which is counted; but not if each
/// lease is on the replica before it counts. Tokens rise all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_while_a_primary_dies_and_no_two_hold_a_lock_that_its_replica_has() {
    for min_replicas in [0, 1] {
        let cluster = RedisCluster::start(with_replicas());
        let names: Vec<_> =
            (0..6).map(|number| name_at(&cluster, &cluster.members[number % 3], "k")).collect();
        let url = cluster.url("", &format!("?min_replicas={min_replicas}"));
        let outcome = under_load(&url, &names, async || {
            tokio::time::sleep(Duration::from_secs(1)).await;
            cluster.members[0].server().kill();
            tokio::task::block_in_place(|| cluster.promoted(&cluster.members[3]));
            // As the replica of the other one.
            cluster.members[0].server().bring_back();
            tokio::time::sleep(Duration::from_secs(3)).await;
        })
        .await;
        let overlaps: usize = outcome.verdicts.iter().map(|verdict| verdict.overlaps).sum();
        println!("{} failed calls, {overlaps} overlaps with {min_replicas}", outcome.failures.len());
        for verdict in &outcome.verdicts {
            assert!(verdict.holds > 20, "{verdict:?} {:?}", outcome.failures);
            assert_eq!((verdict.duplicates, verdict.inversions), (0, 0), "{verdict:?}");
        }
        assert!(min_replicas == 0 || overlaps == 0, "{:?}", outcome.verdicts);
        only_counters_are_left(&cluster).await;
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Hang {
    Paused,
    BlackHoled,
}

/// A server that does not answer delays only the locks that it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_hangs_delays_no_call_to_another() {
    for hang in [Hang::Paused, Hang::BlackHoled] {
        let cluster = RedisCluster::start(Setup { node_timeout: LONG, ..Setup::default() });
        let (proxies, url) = behind_proxies(&cluster);
        let locks = LockManager::connect(&url).await.unwrap();
        let ttl = Duration::from_millis(1_500);
        let [hung, near, far] = [0, 1, 2].map(|number| name_at(&cluster, &cluster.members[number], "k"));
        for name in [&hung, &near, &far] {
            free(&locks, name).await.release().await.unwrap();
        }
        // Acquired at the same time, they are due for renewal at the same time.
        let acquired = [&hung, &near, &far].map(|name| enters(&locks, name, ttl));
        let mut guards = Vec::new();
        for acquired in acquired {
            guards.push(acquired.await.unwrap().1);
        }
        let others = [1, 2].map(|number| name_at(&cluster, &cluster.members[number], "other"));
        match hang {
            Hang::Paused => cluster.members[0].server().pause(),
            Hang::BlackHoled => proxies[0].black_hole(),
        }
        // Callers that need the server that hangs wait.
        let waiter = enters(&locks, &hung, ttl);
        let began = Moment::now();
        while began.elapsed() < 4 * ttl {
            for other in &others {
                let call = Moment::now();
                locks.lock(other).try_acquire().await.unwrap().unwrap().release().await.unwrap();
                assert!(call.within(AT_ONCE), "{hang:?}: {:?}", call.took());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(!guards[0].is_valid(), "{hang:?}");
        assert!(guards[1..].iter().all(LockGuard::is_valid), "{hang:?}: not renewed");
        let shown = locks.status();
        let reachable: Vec<_> =
            shown.servers.iter().map(lock_runtime::backend::ServerStatus::is_reachable).collect();
        assert_eq!(reachable.iter().filter(|is| **is).count(), 2, "{shown:?}");
        match hang {
            Hang::Paused => cluster.members[0].server().bring_back(),
            Hang::BlackHoled => proxies[0].heal(),
        }
        waiter.await.unwrap().1.release().await.unwrap();
        drop(guards);
        locks.shutdown().await;
        only_counters_are_left(&cluster).await;
    }
}

#[tokio::test]
async fn a_cluster_that_takes_no_calls_is_waited_for_and_a_single_attempt_says_so() {
    let full = ["--cluster-require-full-coverage", "yes"];
    let cluster =
        RedisCluster::start(Setup { settings: &full, node_timeout: NODE_TIMEOUT, ..Setup::default() });
    let locks = connect(&cluster).await;
    let name = name_at(&cluster, &cluster.members[1], "k");
    free(&locks, &name).await.release().await.unwrap();
    cluster.members[0].server().kill();
    cluster.until("the cluster is down", |member| member.reports(&["CLUSTER", "INFO"], "cluster_state:fail"));
    let refused = locks.lock(&name).try_acquire().await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Backend, "{refused}");
    assert!(refused.is_retryable(), "{refused}");
    assert!(
        refused.to_string().contains("takes no calls for the hash slot of the lock for now"),
        "{refused}"
    );
    let asked = || cluster.members[1].server().calls("cluster|slots");
    let (before, began) = (asked(), Instant::now());
    let waiter = enters(&locks, &name, LONG);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!waiter.is_finished());
    let (asked, seconds) = (asked() - before, began.elapsed().as_secs() + 1);
    assert!(asked <= 10 * seconds + 2, "{asked} questions in {seconds} s");
    cluster.members[0].server().bring_back();
    waiter.await.unwrap().1.release().await.unwrap();
    locks.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_primary_that_comes_back_gets_no_further_call() {
    let cluster = RedisCluster::start(with_replicas());
    let locks = connect(&cluster).await;
    let name = name_at(&cluster, &cluster.members[0], "k");
    let held = name_at(&cluster, &cluster.members[0], "held");
    let guard = locks.lock(&held).ttl(Duration::from_secs(15)).acquire().await.unwrap();
    is_replicated(&cluster, 0, &format!("lock:{held}")).await;
    cluster.members[0].server().kill();
    tokio::task::block_in_place(|| cluster.promoted(&cluster.members[3]));
    free(&locks, &name).await.release().await.unwrap();
    cluster.members[0].server().bring_back();
    let old = &cluster.members[0];
    until("it is a replica", || {
        if old.reports(&["INFO", "replication"], "master_link_status:up") { Ok(()) } else { Err(()) }
    })
    .await;
    for _ in 0..20 {
        free(&locks, &name).await.release().await.unwrap();
    }
    // Long enough for a renewal.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(guard.is_valid());
    for call in ["evalsha", "eval"] {
        assert_eq!(old.server().calls(call), 0, "{call} of a replaced primary");
    }
    let shown: Vec<_> = locks.status().servers.iter().map(|server| server.address().to_owned()).collect();
    let expected = [1, 2, 3].map(|number| format!("127.0.0.1:{}", cluster.members[number].port));
    assert!(shown.len() == 3 && expected.iter().all(|one| shown.contains(one)), "{shown:?}");
    guard.release().await.unwrap();
    locks.shutdown().await;
    only_counters_are_left(&cluster).await;
}

/// The number of a page's server stays that server's while another one leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_misses_no_lock_of_a_server_that_stays_while_another_is_replaced() {
    let cluster = RedisCluster::start(with_replicas());
    let (locks, other) = (connect(&cluster).await, connect(&cluster).await);
    let names = [0, 1, 2].map(|number| name_at(&cluster, &cluster.members[number], "k"));
    let mut guards = Vec::new();
    for name in &names {
        guards.push(free(&locks, name).await);
    }
    for round in 0..3 {
        let mut scan = other.scan("");
        let mut found = vec![scan.next().await.expect("three are held").unwrap().key.as_str().to_owned()];
        let first = cluster.owner(slot(&cluster, &found[0])).id.clone();
        let number = cluster.members.iter().position(|member| member.id == first).unwrap();
        let replica = &cluster.members[(number + 3) % 6];
        tokio::task::block_in_place(|| cluster.fail_over(replica));
        free(&other, &format!("new{round}")).await.release().await.unwrap();
        let at_first = name_at(&cluster, replica, &format!("at{round}-"));
        free(&other, &at_first).await.release().await.unwrap();
        until("the client knows", || {
            let address = format!("127.0.0.1:{}", replica.port);
            let shown = other.status().servers;
            if shown.iter().any(|server| server.address() == address) && shown.len() == 3 {
                Ok(())
            } else {
                Err(shown)
            }
        })
        .await;
        while let Some(lock) = scan.next().await {
            found.push(lock.unwrap().key.as_str().to_owned());
        }
        found.sort();
        found.dedup();
        let mut expected = names.to_vec();
        expected.sort();
        assert_eq!(found, expected, "round {round}");
    }
    drop(guards);
    assert_eq!(cluster.members[0].command(&["PING"]), Value::Text("PONG".into()));
}

/// A rolling replacement of all servers: none of those in the URL is left in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_follows_a_cluster_of_whose_servers_in_the_url_none_is_left() {
    let mut cluster = RedisCluster::start(Setup { with_replicas: true, ..Setup::default() });
    let seeds: Vec<_> =
        cluster.members[..3].iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
    let locks = LockManager::connect(&format!("redis-cluster://{}", seeds.join(","))).await.unwrap();
    let ttl = Duration::from_secs(4);
    let mut guards = Vec::new();
    for number in 0..3 {
        let name = name_at(&cluster, &cluster.members[number], "k");
        guards.push(locks.lock(name).ttl(ttl).acquire().await.unwrap());
    }
    tokio::task::block_in_place(|| {
        for number in 0..3 {
            cluster.fail_over(&cluster.members[3 + number]);
        }
    });
    tokio::time::sleep(ttl).await;
    for member in &cluster.members[..3] {
        member.server().kill();
    }
    cluster.members.drain(..3);
    tokio::time::sleep(2 * ttl).await;
    for guard in guards {
        assert!(guard.is_valid());
        guard.release().await.unwrap();
    }
    until("the servers of today are shown", || {
        let shown = locks.status();
        let addresses: Vec<_> =
            cluster.members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
        if shown.servers.len() == 3
            && shown.servers.iter().all(|one| addresses.iter().any(|at| at == one.address()))
        {
            Ok(())
        } else {
            Err(shown)
        }
    })
    .await;
}

/// The client asks nothing meanwhile, so no server that it knows is a primary when it asks next, and the only one in the URL
/// is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_client_finds_a_cluster_whose_primaries_were_all_replaced() {
    for were_replicas_known in [true, false] {
        let mut cluster =
            RedisCluster::start(Setup { with_replicas: were_replicas_known, ..Setup::default() });
        let url = format!("redis-cluster://127.0.0.1:{}", cluster.members[0].port);
        let locks = LockManager::connect(&url).await.unwrap();
        let names = [0, 1, 2].map(|number| name_at(&cluster, &cluster.members[number], "k"));
        for name in &names {
            free(&locks, name).await.release().await.unwrap();
        }
        tokio::task::block_in_place(|| {
            if !were_replicas_known {
                cluster.join(3);
                cluster.replicate(&cluster.members[..3], &cluster.members[3..]);
            }
            for number in 0..3 {
                cluster.fail_over(&cluster.members[3 + number]);
            }
        });
        cluster.members[0].server().kill();
        for name in &names {
            free(&locks, name).await.release().await.unwrap();
        }
    }
}

fn promote_the_replica_of_the_only_primary(cluster: &RedisCluster) {
    cluster.members[0].server().kill();
    // Without a majority of the primaries, an operator has to decide.
    let new = &cluster.members[1];
    assert_eq!(new.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]), Value::Text("OK".into()));
}

/// The URL names no other server, and there is no other primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_finds_the_replica_of_the_only_primary() {
    let cluster = RedisCluster::start(Setup { primaries: 1, with_replicas: true, ..Setup::default() });
    let url = format!("redis-cluster://127.0.0.1:{}", cluster.members[0].port);
    let locks = LockManager::connect(&url).await.unwrap();
    free(&locks, "k").await.release().await.unwrap();
    promote_the_replica_of_the_only_primary(&cluster);
    free(&locks, "k").await.release().await.unwrap();
}

/// The client asks nothing after its first question, and the replica joins later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_client_hears_of_a_replica_before_the_only_primary_dies() {
    let mut cluster = RedisCluster::start(Setup { primaries: 1, ..Setup::default() });
    let url = format!("redis-cluster://127.0.0.1:{}", cluster.members[0].port);
    let locks = LockManager::connect(&url).await.unwrap();
    free(&locks, "k").await.release().await.unwrap();
    tokio::task::block_in_place(|| {
        cluster.join(1);
        cluster.replicate(&cluster.members[..1], &cluster.members[1..]);
    });
    // The table of slots is read again after this time.
    tokio::time::sleep(Duration::from_secs(30)).await;
    promote_the_replica_of_the_only_primary(&cluster);
    free(&locks, "k").await.release().await.unwrap();
}
