//! Slots that are moved to another server while their locks are used.

use std::{sync::Arc, time::Duration};

use lock_runtime::{LockErrorKind, LockGuard, LockManager};

use super::{
    LONG, connect, enters, free, name_at, only_counters_are_left, queue_of, queued, slot, under_load,
};
use crate::support::{
    redis_cluster::{Member, Mover, RedisCluster, Setup},
    resp::Value,
    stopwatch::Moment,
};

/// Time within which a call succeeds that nothing holds up; half of the time between two polls of a waiter.
const AT_ONCE: Duration = Duration::from_millis(500);

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
        moving.keys().iter().filter(|key| is_holder(key)).for_each(|key| moving.carry(key));
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

#[tokio::test]
async fn a_waiter_of_a_lock_that_was_released_during_a_move_enters_once_the_move_has_ended() {
    let cluster = RedisCluster::start(Setup::default());
    let (ours, theirs) = (connect(&cluster).await, connect(&cluster).await);
    // The waiter asks once a second, and during a move again and again.
    for (length, limit) in [(1_200, AT_ONCE), (1_200, AT_ONCE), (1_200, AT_ONCE), (10, 3 * AT_ONCE)] {
        let guard = free(&ours, "k").await;
        let token = guard.fencing_token();
        let waiter = enters(&theirs, "k", LONG);
        queued(&cluster, "k", 1).await;
        let at = slot(&cluster, "k");
        let moving = cluster.begin_move(at, cluster.another(at));
        moving.carry("lock:k");
        guard.release().await.unwrap();
        tokio::time::sleep(Duration::from_millis(length)).await;
        assert!(!waiter.is_finished(), "entered during the move");
        moving.end();
        let ended = Moment::now();
        let (_, entered) = waiter.await.unwrap();
        println!("entered {:?} after the move", ended.took());
        assert!(ended.within(limit), "{:?}", ended.took());
        assert!(entered.fencing_token() > token);
        entered.release().await.unwrap();
    }
    ours.shutdown().await;
    theirs.shutdown().await;
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

/// The hand-over is a message of a server that the waiter has not asked yet.
#[tokio::test]
async fn who_waits_is_notified_of_a_hand_over_after_the_slot_was_moved() {
    let cluster = RedisCluster::start(Setup::default());
    let (ours, theirs) = (connect(&cluster).await, connect(&cluster).await);
    let mut last = None;
    let mut late = 0;
    for _ in 0..6 {
        let guard = free(&ours, "k").await;
        assert!(Some(guard.fencing_token()) > last);
        let waiter = enters(&theirs, "k", LONG);
        queued(&cluster, "k", 1).await;
        let at = slot(&cluster, "k");
        cluster.move_slot(at, cluster.another(at), Duration::ZERO);
        let began = Moment::now();
        let token = guard.fencing_token();
        guard.release().await.unwrap();
        let (_, entered) = waiter.await.unwrap();
        late += usize::from(!began.within(AT_ONCE / 2));
        assert!(entered.fencing_token() > token);
        last = Some(entered.fencing_token());
        entered.release().await.unwrap();
    }
    assert!(late <= 1, "{late} of 6 entered only when they polled");
    ours.shutdown().await;
    theirs.shutdown().await;
    only_counters_are_left(&cluster).await;
}

#[tokio::test]
async fn an_acquisition_waits_for_the_end_of_a_move_and_a_single_attempt_says_why_it_fails() {
    let cluster = RedisCluster::start(Setup::default());
    let locks = LockManager::connect(&cluster.url("", "?response_timeout=300ms")).await.unwrap();
    let last = free(&locks, "k").await;
    let token = last.fencing_token();
    last.release().await.unwrap();
    let at = slot(&cluster, "k");
    let moving = cluster.begin_move(at, cluster.another(at));
    let began = Moment::now();
    let refused = locks.lock("k").try_acquire().await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Backend, "{refused}");
    assert!(refused.is_retryable(), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("the hash slot of the lock is being moved to another server"), "{text}");
    assert!(began.within(Duration::from_secs(1)), "{:?}", began.took());
    let given_up = locks.lock("k").wait(Duration::from_millis(700)).acquire().await.unwrap_err();
    assert!(given_up.to_string().contains("is being moved"), "{given_up}");
    let lock = locks.lock("k").wait(LONG);
    let dropped = tokio::time::timeout(Duration::from_millis(100), lock.acquire()).await;
    assert!(dropped.is_err(), "entered during the move");
    let waiter = enters(&locks, "k", LONG);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!waiter.is_finished());
    moving.end();
    let ended = Moment::now();
    let (_, entered) = waiter.await.unwrap();
    assert!(ended.within(AT_ONCE), "{:?}", ended.took());
    assert!(entered.fencing_token() > token);
    entered.release().await.unwrap();
    locks.shutdown().await;
    only_counters_are_left(&cluster).await;
}

/// The counter of tokens is moved with the locks of its slot.
#[tokio::test]
async fn tokens_rise_when_a_slot_is_moved_there_and_back() {
    let cluster = RedisCluster::start(Setup { with_clock: true, ..Setup::default() });
    // The clock of the first server is ahead of the others' by an hour.
    cluster.members[0].server().clock().expect("started with one").set_forward(Duration::from_secs(3_600));
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

/// The first in the queue asks every 50 to 100 ms behind a foreign holder, and each time learns where its lock is now.
#[tokio::test]
async fn a_waiter_follows_its_lock_however_often_the_slot_is_moved() {
    let cluster = RedisCluster::start(Setup::default());
    let locks = connect(&cluster).await;
    cluster.command(&["SET", "lock:k", "foreign", "PX", "600000"]);
    let waiter = enters(&locks, "k", LONG);
    queued(&cluster, "k", 1).await;
    let at = slot(&cluster, "k");
    for _ in 0..24 {
        cluster.move_slot(at, cluster.another(at), Duration::ZERO);
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert!(!waiter.is_finished());
    cluster.command(&["DEL", "lock:k"]);
    let freed = Moment::now();
    waiter.await.unwrap().1.release().await.unwrap();
    assert!(freed.within(AT_ONCE), "{:?}", freed.took());
}

/// No call of the holder's goes to the lock's server in between: its renewal is due ten seconds later.
#[tokio::test]
async fn a_holder_is_told_of_waiters_after_its_slot_was_moved() {
    let cluster = RedisCluster::start(Setup::default());
    let (ours, theirs) = (connect(&cluster).await, connect(&cluster).await);
    let guard = ours.lock("k").ttl(LONG).acquire().await.unwrap();
    let wanted = tokio::spawn(guard.wanted());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let at = slot(&cluster, "k");
    cluster.move_slot(at, cluster.another(at), Duration::ZERO);
    let waiter = enters(&theirs, "k", LONG);
    queued(&cluster, "k", 1).await;
    let began = Moment::now();
    wanted.await.unwrap();
    assert!(began.within(Duration::from_secs(1)), "{:?}", began.took());
    guard.release().await.unwrap();
    waiter.await.unwrap().1.release().await.unwrap();
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
        moving.keys().iter().filter(|key| is_holder(key)).for_each(|key| moving.carry(key));
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

/// The places in the queue are stale by the end of such a move.
#[tokio::test]
async fn who_waits_enters_after_a_move_that_takes_longer_than_a_place_lasts() {
    let cluster = RedisCluster::start(Setup::default());
    let (ours, theirs) = (connect(&cluster).await, connect(&cluster).await);
    let guard = free(&ours, "k").await;
    let token = guard.fencing_token();
    let waiters = [enters(&theirs, "k", LONG), enters(&connect(&cluster).await, "k", LONG)];
    queued(&cluster, "k", 2).await;
    let at = slot(&cluster, "k");
    let moving = cluster.begin_move(at, cluster.another(at));
    moving.carry(&queue_of("k"));
    tokio::time::sleep(Duration::from_secs(7)).await;
    guard.release().await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    moving.end();
    let ended = Moment::now();
    for waiter in waiters {
        let (_, entered) = waiter.await.unwrap();
        assert!(entered.fencing_token() > token);
        entered.release().await.unwrap();
    }
    assert!(ended.within(4 * AT_ONCE), "{:?}", ended.took());
    ours.shutdown().await;
    theirs.shutdown().await;
    only_counters_are_left(&cluster).await;
}

/// With `min_replicas`, a lease is confirmed where the lock is, which the message of the hand-over does not say.
#[tokio::test]
async fn a_lease_that_is_handed_over_after_a_move_is_confirmed_at_the_new_server() {
    let cluster = RedisCluster::start(Setup { with_replicas: true, ..Setup::default() });
    let url = cluster.url("", "?min_replicas=1");
    let connect_with = async || LockManager::connect(&url).await.unwrap();
    // The second needs no confirmation, so it enters as soon as the first has given up its turn.
    let (ours, first, second) = (connect_with().await, connect_with().await, connect(&cluster).await);
    let guard = free(&ours, "k").await;
    let waiters = {
        let first = enters(&first, "k", LONG);
        queued(&cluster, "k", 1).await;
        let second = enters(&second, "k", LONG);
        queued(&cluster, "k", 2).await;
        [first, second]
    };
    let at = slot(&cluster, "k");
    cluster.move_slot(at, cluster.another(at), Duration::ZERO);
    let began = Moment::now();
    guard.release().await.unwrap();
    let [first, second] = waiters;
    let (entered, guard) = first.await.unwrap();
    assert!(!second.is_finished(), "the second came first");
    assert!(began.within(2 * AT_ONCE), "{:?}", began.took());
    guard.release().await.unwrap();
    assert!(second.await.unwrap().0 > entered);
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
    let mut moved = 0;
    let outcome = under_load(&cluster, &names, async || {
        let mover = Mover::start(Arc::clone(&cluster), Duration::from_millis(50), Duration::from_millis(30));
        tokio::time::sleep(Duration::from_secs(10)).await;
        moved = tokio::task::block_in_place(|| mover.end());
    })
    .await;
    println!("{moved} moves, {:?}", outcome.verdicts);
    assert!(moved > 10 && outcome.failures.is_empty(), "{moved} moves, {:?}", outcome.failures);
    for verdict in &outcome.verdicts {
        assert!(verdict.holds > 20, "{verdict:?}");
        assert_eq!((verdict.overlaps, verdict.duplicates, verdict.inversions), (0, 0, 0), "{verdict:?}");
    }
    assert!(held.iter().all(LockGuard::is_valid), "a renewal was missed");
    drop(held);
    keeper.shutdown().await;
    only_counters_are_left(&cluster).await;
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
    let new = cluster.join();
    let at = slot(&cluster, "k");
    let moving = cluster.begin_move(at, &cluster.members[new]);
    moving.carry("lock:k");
    tokio::time::sleep(3 * ttl).await;
    assert!(guard.is_valid(), "not renewed at a server without slots");
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
