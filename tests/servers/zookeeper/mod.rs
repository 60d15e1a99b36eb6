//! Tests of one ZooKeeper server, and so not cases of the conformance suite.

mod operate;
mod outages;
mod refused;

use std::time::{Duration, Instant};

use lock_runtime::{LockErrorKind, LockManager};

use crate::support::{
    self,
    stopwatch::Moment,
    until,
    zookeeper_protocol::{self as zk, Client},
    zookeeper_server::{SESSION, TICK, ZooKeeperServer},
};

const LONG: Duration = Duration::from_secs(30);
/// The time that a busy machine may add.
const SLACK: Duration = Duration::from_millis(1500);
/// The time that it may add to a published bound.
const MOMENT: Duration = Duration::from_millis(300);

fn url(addresses: &str, rest: &str) -> String {
    format!("zookeeper://{addresses}{rest}?session_timeout={}ms", SESSION.as_millis())
}

async fn connect(server: &ZooKeeperServer) -> LockManager {
    LockManager::connect(&url(&server.address().to_string(), "")).await.unwrap()
}

/// For sessions shorter than the time that a fresh server may need to answer.
async fn connect_soon(url: &str) -> LockManager {
    let end = Instant::now() + LONG;
    loop {
        match LockManager::connect(url).await {
            Ok(locks) => return locks,
            Err(error) => assert!(error.is_retryable() && Instant::now() < end, "{error}"),
        }
    }
}

fn admin(server: &ZooKeeperServer) -> Client {
    Client::connect(server.address()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_wakes_exactly_one_of_two_hundred_waiters() {
    const WAITERS: usize = 200;
    let server = ZooKeeperServer::start("");
    let holder = connect(&server).await.wait(LONG);
    let guard = holder.lock("k").acquire().await.unwrap();
    // Each in its own session: the tasks of one manager wait inside it.
    let (entered, mut order) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = Vec::new();
    for number in 0..WAITERS {
        let lock = connect(&server).await.wait(LONG * 4).lock("k");
        let (entered, (leave, left)) = (entered.clone(), tokio::sync::oneshot::channel::<()>());
        tasks.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            entered.send((number, leave)).unwrap();
            let _ = left.await;
            guard.release().await.unwrap();
        }));
        let mut admin = admin(&server);
        until("it stands in the queue", || {
            let there = admin.children("/lock:k").unwrap().unwrap().len();
            if there == number + 2 { Ok(()) } else { Err(there) }
        })
        .await;
    }
    let watches = || usize::try_from(server.number("zk_watch_count")).unwrap();
    // The holder's own node is watched once it has been held for a while.
    until("each watches one", || {
        let watches = watches();
        if watches == WAITERS + 1 { Ok(()) } else { Err(watches) }
    })
    .await;
    guard.release().await.unwrap();
    let mut turns = 0;
    while let Some((number, leave)) = order.recv().await {
        assert_eq!(number, turns, "the order is kept");
        turns += 1;
        let _ = leave.send(());
        if turns == WAITERS {
            break;
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(admin(&server).children("/lock:k").unwrap().unwrap_or_default().len(), 0);
    // Clients notified of a deleted node: its successor, and its owner if it had held for a while.
    let told = |what: &str| server.number(&format!("zk_{what}_watch_count"));
    assert_eq!(told("max_node_deleted"), 2);
    assert!((200..=201).contains(&told("cnt_node_deleted")), "{}", told("cnt_node_deleted"));
    assert!(told("sum_node_deleted") >= 201);
    for other in ["children", "changed", "created"] {
        assert_eq!(told(&format!("sum_node_{other}")), 0, "{other}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_when_a_lock_s_node_is_deleted_and_made_again() {
    let server = ZooKeeperServer::start("");
    let locks = connect(&server).await;
    let mut admin = admin(&server);
    let (mut last, mut sequences) = (None, Vec::new());
    for _ in 0..4 {
        let guard = locks.lock("k").acquire().await.unwrap();
        assert!(last < Some(guard.fencing_token()), "{last:?}, then {:?}", guard.fencing_token());
        last = Some(guard.fencing_token());
        let name = admin.children("/lock:k").unwrap().unwrap().remove(0);
        sequences.push(name.rsplit_once('-').unwrap().1.to_owned());
        guard.release().await.unwrap();
        // The server's own clean-up may have come first.
        let deleted = admin.delete("/lock:k").unwrap();
        assert!(matches!(deleted, Ok(()) | Err(zk::NO_NODE)), "{deleted:?}");
    }
    assert!(sequences.iter().all(|number| *number == sequences[0]), "the test shows nothing: {sequences:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_was_used_once_does_not_stay() {
    let server = ZooKeeperServer::start("");
    let locks = connect(&server).await;
    for number in 0..20 {
        locks.lock(format!("once:{number}")).acquire().await.unwrap().release().await.unwrap();
    }
    let mut admin = admin(&server);
    until("they are gone", || {
        let left: Vec<_> = admin.children("/").unwrap().unwrap();
        let left: Vec<_> = left.into_iter().filter(|name| name.contains("once:")).collect();
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_node_is_removed_contends_anew() {
    let server = ZooKeeperServer::start("");
    let (ours, theirs) = (connect(&server).await, connect(&server).await);
    let guard = ours.lock("k").acquire().await.unwrap();
    let lock = theirs.lock("k").wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    let mut admin = admin(&server);
    let mut contenders = || {
        let mut names = admin.children("/lock:k").unwrap().unwrap_or_default();
        names.sort_by_key(|name| name.rsplit_once('-').unwrap().1.to_owned());
        names
    };
    until("it waits", || if contenders().len() == 2 { Ok(()) } else { Err(()) }).await;
    let mut names = contenders();
    admin.delete(&format!("/lock:k/{}", names.remove(1))).unwrap().unwrap();
    guard.release().await.unwrap();
    let guard = tokio::time::timeout(LONG, waiter).await.expect("let in").unwrap();
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chroot_is_made_and_credentials_keep_others_out() {
    let server = ZooKeeperServer::start("");
    let address = server.address();
    let mine = LockManager::connect(&url(&format!("us:secret@{address}"), "/of/us")).await.unwrap();
    let guard = mine.lock("k").acquire().await.unwrap();
    let mut admin = admin(&server);
    assert_eq!(admin.children("/of/us/lock:k").unwrap().unwrap_err(), -102, "NoAuth");
    guard.release().await.unwrap();
    let others = LockManager::connect(&url(&format!("them:secret@{address}"), "/of/us")).await.unwrap();
    let error = others.lock("k").wait(Duration::from_millis(300)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend);
    assert!(error.to_string().contains("denied access"), "{error}");
    mine.lock("k").acquire().await.unwrap().release().await.unwrap();
}

/// Heartbeats are refused there, but only after a vote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_kept_below_a_chroot_that_may_not_be_read() {
    let server = ZooKeeperServer::start("");
    let narrow = admin(&server).create_for(zk::CREATE_AND_DELETE, "/narrow", b"", zk::PERSISTENT);
    narrow.unwrap().unwrap();
    let locks = LockManager::connect(&url(&server.address().to_string(), "/narrow")).await.unwrap();
    let guard = locks.lock("k").acquire().await.unwrap();
    tokio::time::sleep(SESSION * 3 / 2).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_shorter_than_the_granted_session_is_refused() {
    let server = ZooKeeperServer::start("");
    // A timeout below two ticks is not granted.
    let locks = connect_soon(&format!("zookeeper://{}?session_timeout=100ms", server.address())).await;
    let granted = locks.capabilities().session_timeout().unwrap();
    assert_eq!(granted, TICK * 2);
    let error = locks
        .lock("k")
        .ttl(granted.saturating_sub(Duration::from_millis(1)))
        .try_acquire()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
    assert!(error.to_string().contains("session"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_transaction_is_carried_out_only_while_the_lock_is_held() {
    use lock_runtime::backend::zookeeper::fence;

    let server = ZooKeeperServer::start("");
    let address = server.address().to_string();
    let locks = LockManager::connect(&url(&address, "/locks")).await.unwrap();
    let mut admin = admin(&server);
    admin.create("/balance", b"100", zk::PERSISTENT).unwrap().unwrap();
    let client = zookeeper_client::Client::connect(&address).await.unwrap();
    let guard = locks.lock("user:42").acquire().await.unwrap();
    let held = guard.held();
    let mut write = fence::begin(&client, &held).unwrap();
    write.add_set_data("/balance", b"70", None).unwrap();
    write.commit().await.unwrap();
    assert_eq!(admin.data("/balance").unwrap().unwrap(), b"70");
    // Prepared while the lock is held, and sent late.
    let mut late = fence::begin(&client, &held).unwrap();
    late.add_set_data("/balance", b"0", None).unwrap();
    guard.release().await.unwrap();
    let next = locks.lock("user:42").acquire().await.unwrap();
    let error = late.commit().await.unwrap_err();
    assert!(matches!(error, zookeeper_client::CheckWriteError::CheckFailed { .. }), "{error:?}");
    assert_eq!(admin.data("/balance").unwrap().unwrap(), b"70");
    let below = client.clone().chroot("/locks").unwrap();
    fence::begin(&below, &next.held()).unwrap();
    let elsewhere = client.chroot("/elsewhere").unwrap();
    let error = fence::begin(&elsewhere, &next.held()).map(drop).unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::InvalidOptions, "{error}");
    let memory = LockManager::connect("memory:").await.unwrap().lock("k").acquire().await.unwrap();
    let error = fence::begin(&elsewhere, &memory.held()).map(drop).unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unsupported, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_counter_of_a_lock_s_contenders_does_not_come_to_its_end() {
    // At its end the server repeats one number, and two contenders have the same.
    for used in [i32::MAX, i32::MAX - 3] {
        let (server, mut admin, foreign) = loop {
            let mut server = ZooKeeperServer::start("");
            server.with_used("/lock:k", used);
            let mut admin = admin(&server);
            // On a busy machine the server may be faster, and remove the node because it is empty.
            match admin.create("/lock:k/foreign-", b"", zk::EPHEMERAL_SEQUENTIAL).unwrap() {
                Ok(path) => break (server, admin, path),
                Err(code) => assert_eq!(code, zk::NO_NODE),
            }
        };
        assert!(foreign.ends_with(&format!("-{used:010}")), "{foreign}: the test shows nothing");
        let managers = [connect(&server).await.wait(LONG), connect(&server).await.wait(LONG)];
        for locks in &managers {
            assert!(locks.lock("k").try_acquire().await.unwrap().is_none(), "next to another contender");
        }
        let waiters = managers.each_ref().map(|locks| {
            let lock = locks.lock("k");
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                let entered = support::monotonic();
                tokio::time::sleep(Duration::from_millis(100)).await;
                let left = support::monotonic();
                assert!(guard.is_valid());
                guard.release().await.unwrap();
                (entered, left)
            })
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "next to another contender");
        admin.delete(&foreign).unwrap().unwrap();
        let [first, second] = waiters;
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        assert!(first.1 <= second.0 || second.1 <= first.0, "both at once: {first:?}, {second:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shortest_session_is_long_enough_for_the_default_ttl() {
    let server = ZooKeeperServer::start("");
    let url = format!("zookeeper://{}?session_timeout=500ms", server.address());
    let locks = connect_soon(&url).await;
    let end = Instant::now() + LONG;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut done = 0;
    while done < 20 {
        let began = Moment::now();
        let outcome = async { locks.lock("k").try_acquire().await?.expect("free").release().await }.await;
        // It may end where the machine keeps server and client from running for a part of the session.
        match outcome {
            Ok(()) => done += 1,
            Err(error) => assert!(
                began.took().late > Duration::from_millis(100) && Instant::now() < end,
                "{error}: {:?}",
                began.took()
            ),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquisition_that_is_given_up_leaves_no_lock_s_node_for_ever() {
    let server = ZooKeeperServer::start("");
    let locks = connect(&server).await;
    for number in 0..200_u64 {
        let lock = locks.lock(format!("given-up:{number}"));
        let moment = Duration::from_micros(number * 25);
        let _ = tokio::time::timeout(moment, async { drop(lock.acquire().await) }).await;
    }
    locks.shutdown().await;
    let mut admin = admin(&server);
    until("they are gone", || {
        let left: Vec<_> = admin.children("/").unwrap().unwrap();
        let left: Vec<_> = left.into_iter().filter(|name| name.contains("given-up:")).collect();
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
}
