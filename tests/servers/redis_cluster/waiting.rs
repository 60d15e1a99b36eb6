//! Waiters of locks whose slots are moved to another server meanwhile.

use std::time::Duration;

use lock_runtime::{LockErrorKind, LockManager};

use super::{AT_ONCE, LONG, connect, enters, free, only_counters_are_left, queue_of, queued, slot};
use crate::support::{
    redis_cluster::{Move, RedisCluster, Setup},
    stopwatch::Moment,
};

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

/// The first in the queue asks every 50 to 100 ms behind a foreign holder, and each time learns where its lock is now.
#[tokio::test]
async fn a_waiter_follows_its_lock_however_often_the_slot_is_moved() {
    let cluster = RedisCluster::start(Setup::default());
    let locks = connect(&cluster).await;
    cluster.command(&["SET", "lock:k", "foreign", "PX", "600000"]);
    let waiter = enters(&locks, "k", LONG);
    queued(&cluster, "k", 1).await;
    let at = slot(&cluster, "k");
    // An odd number: at the end, the lock is not where it was at first.
    for _ in 0..25 {
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

/// The lock is held, whether its server can be asked in the last moment or not.
#[tokio::test]
async fn a_wait_that_ends_during_a_move_or_after_it_has_timed_out() {
    let cluster = RedisCluster::start(Setup::default());
    let (ours, theirs) = (connect(&cluster).await, connect(&cluster).await);
    let guard = free(&ours, "k").await;
    for ends in [true, false] {
        let lock = theirs.lock("k").wait(Duration::from_millis(600));
        let waiter = tokio::spawn(async move { lock.acquire().await });
        queued(&cluster, "k", 1).await;
        let at = slot(&cluster, "k");
        let moving = cluster.begin_move(at, cluster.another(at));
        moving.carry("lock:k");
        let mut unfinished = Some(moving);
        if ends {
            unfinished.take().into_iter().for_each(Move::end);
        }
        let error = waiter.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
        unfinished.into_iter().for_each(Move::end);
        queued(&cluster, "k", 0).await;
    }
    guard.release().await.unwrap();
}

/// The places in the queue are stale by the end of such a move.
#[tokio::test]
async fn who_waits_enters_after_a_move_that_takes_longer_than_a_place_lasts() {
    let cluster = RedisCluster::start(Setup::default());
    let (ours, theirs) = (connect(&cluster).await, connect(&cluster).await);
    let guard = free(&ours, "k").await;
    let token = guard.fencing_token();
    let waiters = [theirs.clone(), connect(&cluster).await].map(|locks| {
        tokio::spawn(async move {
            let guard = free(&locks, "k").await;
            let token = guard.fencing_token();
            guard.release().await.map(|()| token)
        })
    });
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
        assert!(waiter.await.unwrap().unwrap() > token);
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
