//! Slots that are moved to another server while their locks are used.

use std::{sync::Arc, time::Duration};

use lock_runtime::{LockGuard, LockManager};

use super::{
    AT_ONCE, LONG, behind_proxies, connect, enters, free, name_at, only_counters_are_left, queue_of, queued,
    slot, under_load,
};
use crate::support::{
    redis_cluster::{Member, RedisCluster, Setup, move_slots},
    resp::Value,
    stopwatch::Moment,
};

#[tokio::test]
async fn a_lock_is_renewed_and_released_while_its_slot_is_half_moved() {
    let cluster = RedisCluster::start(Setup::default());
    let locks = connect(&cluster).await;
    let ttl = Duration::from_millis(1_500);
    let mut last = None;
    for holder_is_moved in [true, false] {
        let guard = locks.lock("k").ttl(ttl).acquire().await.unwrap();
        assert!(Some(guard.fencing_token()) > last);
        last = Some(guard.fencing_token());
        let at = slot(&cluster, "k");
        let moving = cluster.begin_move(at, cluster.another(at));
        let is_holder = |key: &String| (key == "lock:k") == holder_is_moved;
        for key in moving.keys().iter().filter(|key| is_holder(key)) {
            moving.carry(key);
        }
        tokio::time::sleep(4 * ttl).await;
        assert!(guard.is_valid(), "not renewed, moved: {holder_is_moved}");
        let began = Moment::now();
        guard.release().await.unwrap();
        assert!(began.within(AT_ONCE), "{:?}", began.took());
        assert_eq!(cluster.command(&["EXISTS", "lock:k"]).int(), 0);
        moving.end();
    }
    locks.shutdown().await;
    only_counters_are_left(&cluster).await;
}

fn told_where_to_go(member: &Member) -> u64 {
    let Value::Text(errors) = member.command(&["INFO", "errorstats"]) else { panic!("INFO is a text") };
    let count = errors.lines().find_map(|line| line.strip_prefix("errorstat_MOVED:count="));
    count.map_or(0, |count| count.parse().expect("a number"))
}

/// The table is asked for as well, but no call waits for that.
#[tokio::test]
async fn a_call_goes_at_once_where_a_server_has_said_that_the_slot_is_and_so_do_all_later_ones() {
    let cluster = RedisCluster::start(Setup::default());
    let locks = connect(&cluster).await;
    for round in 0..4 {
        let at = slot(&cluster, "k");
        free(&locks, "k").await.release().await.unwrap();
        let (old, new) = (cluster.owner(at), cluster.another(at));
        cluster.move_slot(at, new, Duration::ZERO);
        let before = told_where_to_go(old);
        for _ in 0..3 {
            locks.lock("k").try_acquire().await.unwrap().unwrap().release().await.unwrap();
        }
        assert_eq!(told_where_to_go(old) - before, 1, "round {round}");
    }
}

/// The counter of tokens is moved with the locks of its slot.
#[tokio::test]
async fn tokens_rise_when_a_slot_is_moved_there_and_back() {
    let cluster = RedisCluster::start(Setup { with_clock: true, ..Setup::default() });
    // The clock of the first server is ahead of the others' by an hour.
    cluster.members[0].server().clock().expect("started with one").set_forward(Duration::from_hours(1));
    cluster.until("the cluster is up", |member| member.reports(&["CLUSTER", "INFO"], "cluster_state:ok"));
    let locks = connect(&cluster).await;
    let name = name_at(&cluster, &cluster.members[0], "k");
    let at = slot(&cluster, &name);
    let mut last = None;
    for round in 0..8 {
        let guard = free(&locks, &name).await;
        assert!(Some(guard.fencing_token()) > last, "round {round}");
        last = Some(guard.fencing_token());
        guard.release().await.unwrap();
        cluster.move_slot(at, &cluster.members[(round + 1) % 2], Duration::ZERO);
    }
    locks.shutdown().await;
}

#[tokio::test]
async fn all_leases_of_a_hash_tag_are_renewed_while_their_slot_is_half_moved() {
    let cluster = RedisCluster::start(Setup::default());
    let locks = connect(&cluster).await.with_prefix("{tag}:").unwrap();
    let ttl = Duration::from_millis(1_500);
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(locks.lock(format!("k{number}")).ttl(ttl).acquire().await.unwrap());
    }
    let at = cluster.slot("{tag}:");
    let moving = cluster.begin_move(at, cluster.another(at));
    for number in (0..20).step_by(2) {
        moving.carry(&format!("{{tag}}:k{number}"));
    }
    tokio::time::sleep(3 * ttl).await;
    assert!(guards.iter().all(LockGuard::is_valid));
    moving.end();
    tokio::time::sleep(2 * ttl).await;
    assert!(guards.iter().all(LockGuard::is_valid));
    for guard in guards {
        guard.release().await.unwrap();
    }
    locks.shutdown().await;
    only_counters_are_left(&cluster).await;
}

/// A server that does not answer delays only the renewals of its own locks, also if a slot is being moved to it.
#[tokio::test]
async fn a_slot_that_is_moved_to_a_server_that_hangs_delays_no_renewal_of_other_slots() {
    let cluster = RedisCluster::start(Setup { node_timeout: LONG, ..Setup::default() });
    let locks = connect(&cluster).await;
    let [from, to, _] = &cluster.members[..] else { unreachable!("three primaries") };
    let ttl = Duration::from_secs(2);
    let moved = name_at(&cluster, from, "moved");
    let others: Vec<_> = (0..5).map(|number| name_at(&cluster, from, &format!("other{number}-"))).collect();
    let lost = locks.lock(&moved).ttl(ttl).acquire().await.unwrap();
    let mut kept = Vec::new();
    for name in &others {
        kept.push(locks.lock(name).ttl(ttl).acquire().await.unwrap());
    }
    let moving = cluster.begin_move(slot(&cluster, &moved), to);
    moving.carry(&format!("lock:{moved}"));
    to.server().pause();
    tokio::time::sleep(4 * ttl).await;
    assert!(!lost.is_valid());
    for (guard, name) in kept.iter().zip(&others) {
        assert!(guard.is_valid(), "{name} was not renewed");
    }
    to.server().bring_back();
    moving.end();
}

/// The holder does not know of the revocation yet.
#[tokio::test]
async fn a_lock_that_was_revoked_is_free_at_the_end_of_the_move_during_which_it_was_released() {
    let cluster = RedisCluster::start(Setup::default());
    let locks = connect(&cluster).await;
    let guard = locks.lock("k").ttl(LONG).acquire().await.unwrap();
    let at = slot(&cluster, "k");
    let moving = cluster.begin_move(at, cluster.another(at));
    let holder = cluster.command(&["GET", "lock:k"]).text();
    moving.carry("lock:k");
    cluster.command(&["SET", "lock:k", &format!("{holder}!"), "KEEPTTL"]);
    drop(guard);
    tokio::time::sleep(Duration::from_millis(500)).await;
    moving.end();
    let ended = Moment::now();
    free(&locks, "k").await.release().await.unwrap();
    assert!(ended.within(Duration::from_secs(2)), "{:?}", ended.took());
}

#[tokio::test]
async fn operators_see_a_lock_during_a_move_and_are_told_what_has_to_wait() {
    let cluster = RedisCluster::start(Setup::default());
    let locks = LockManager::connect(&cluster.url("", "?response_timeout=300ms")).await.unwrap();
    for holder_is_moved in [true, false] {
        let guard = locks.lock("k").acquire().await.unwrap();
        let at = slot(&cluster, "k");
        let moving = cluster.begin_move(at, cluster.another(at));
        let is_holder = |key: &String| (key == "lock:k") == holder_is_moved;
        for key in moving.keys().iter().filter(|key| is_holder(key)) {
            moving.carry(key);
        }
        let refused = [
            locks.inspect("k").await.map(drop).unwrap_err(),
            locks.revoke("k", guard.fencing_token()).await.map(drop).unwrap_err(),
        ];
        for error in refused {
            assert!(error.is_retryable() && error.to_string().contains("is being moved"), "{error}");
        }
        let mut scan = locks.scan("");
        let mut found = Vec::new();
        while let Some(lock) = scan.next().await {
            found.push(lock.unwrap().key.as_str().to_owned());
        }
        assert_eq!(found, ["k"], "moved: {holder_is_moved}");
        moving.end();
        assert!(locks.inspect("k").await.unwrap().is_held());
        assert!(locks.revoke("k", guard.fencing_token()).await.unwrap());
        tokio::time::timeout(LONG, guard.lost()).await.expect("notified");
        drop(guard);
    }
    locks.shutdown().await;
    only_counters_are_left(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_hold_a_lock_and_no_renewal_is_missed_while_slots_are_moved() {
    let cluster = Arc::new(RedisCluster::start(Setup::default()));
    let keeper = connect(&cluster).await;
    let mut held = Vec::new();
    for number in 0..10 {
        held.push(keeper.lock(format!("held{number}")).ttl(Duration::from_secs(2)).acquire().await.unwrap());
    }
    let names: Vec<_> = (0..6).map(|number| format!("k{number}")).collect();
    let mut count = 0;
    let outcome = under_load(&cluster.url("", ""), &names, async || {
        let mover = move_slots(
            Arc::clone(&cluster),
            Duration::from_millis(50),
            Duration::from_millis(30),
            &[],
            |_| (),
        );
        tokio::time::sleep(Duration::from_secs(10)).await;
        count = tokio::task::block_in_place(|| mover.end());
    })
    .await;
    println!("{count} moves, {:?}", outcome.verdicts);
    assert!(count > 10 && outcome.failures.is_empty(), "{count} moves, {:?}", outcome.failures);
    for verdict in &outcome.verdicts {
        assert!(verdict.holds > 20, "{verdict:?}");
        assert_eq!((verdict.overlaps, verdict.duplicates, verdict.inversions), (0, 0, 0), "{verdict:?}");
    }
    assert!(held.iter().all(LockGuard::is_valid), "a renewal was missed");
    drop(held);
    keeper.shutdown().await;
    only_counters_are_left(&cluster).await;
}

/// The release was executed by the server to which the slot is being moved.
#[tokio::test]
async fn a_release_whose_answer_was_lost_during_a_move_is_a_success() {
    let cluster = RedisCluster::start(Setup::default());
    let (proxies, url) = behind_proxies(&cluster);
    let locks = LockManager::connect(&url).await.unwrap().with_prefix("{tag}:").unwrap();
    let (first, second) = (free(&locks, "first").await, free(&locks, "second").await);
    let at = cluster.slot("{tag}:");
    let to = cluster.another(at);
    let moving = cluster.begin_move(at, to);
    moving.carry("{tag}:first");
    moving.carry("{tag}:second");
    // From now on there is a connection, whose next answer is that to the release.
    first.release().await.unwrap();
    let proxy = cluster.members.iter().position(|member| member.id == to.id).map(|number| &proxies[number]);
    let proxy = proxy.expect("one of them");
    proxy.lose_answer(1);
    second.release().await.unwrap();
    assert!(!proxy.keep_answers(), "no answer was lost");
    assert_eq!(cluster.command(&["EXISTS", "{tag}:second"]).int(), 0);
    moving.end();
    locks.shutdown().await;
    only_counters_are_left(&cluster).await;
}

/// The connections over which scripts were called last.
fn connections_of_calls(member: &Member) -> Vec<String> {
    let Value::Text(clients) = member.command(&["CLIENT", "LIST"]) else { panic!("a text") };
    let calls = clients.lines().filter(|line| line.contains(" cmd=evalsha "));
    calls.filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
}

/// A cluster grows: a primary without slots joins, and gets some.
#[tokio::test]
async fn a_new_primary_gets_slots_of_locks_that_are_held_and_waited_for() {
    let mut cluster = RedisCluster::start(Setup::default());
    let (ours, theirs) = (connect(&cluster).await, connect(&cluster).await);
    let ttl = Duration::from_millis(1_500);
    let guard = ours.lock("k").ttl(ttl).acquire().await.unwrap();
    let waiter = enters(&theirs, "k", ttl);
    queued(&cluster, "k", 1).await;
    let new = cluster.join(1);
    let at = slot(&cluster, "k");
    let moving = cluster.begin_move(at, &cluster.members[new]);
    moving.carry("lock:k");
    tokio::time::sleep(ttl).await;
    let connections = connections_of_calls(&cluster.members[new]);
    assert!(!connections.is_empty(), "not renewed at a server without slots");
    // The table of slots is read, in which the server has none.
    let other =
        (0..100).map(|number| format!("other{number}")).find(|name| slot(&cluster, name) != at).unwrap();
    free(&ours, &other).await.release().await.unwrap();
    let elsewhere = slot(&cluster, &other);
    let third = cluster
        .members
        .iter()
        .find(|member| member.id != cluster.members[new].id && member.id != cluster.owner(elsewhere).id);
    cluster.move_slot(elsewhere, third.unwrap(), Duration::ZERO);
    free(&ours, &other).await.release().await.unwrap();
    tokio::time::sleep(ttl).await;
    assert!(guard.is_valid());
    assert_eq!(connections_of_calls(&cluster.members[new]), connections, "its connections were given up");
    moving.end();
    tokio::time::sleep(3 * ttl).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    let (_, entered) = waiter.await.unwrap();
    let is_new = |member: &Member| member.command(&["EXISTS", "lock:k"]) == Value::Int(1);
    assert!(is_new(&cluster.members[new]));
    let shown = theirs.status().servers;
    let address = format!("127.0.0.1:{}", cluster.members[new].port);
    assert!(shown.iter().any(|server| server.address() == address), "{shown:?}");
    entered.release().await.unwrap();
    assert_eq!(cluster.command(&["EXISTS", &queue_of("k")]).int(), 0);
}
