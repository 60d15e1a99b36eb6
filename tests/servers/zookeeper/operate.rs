//! What operators see of the locks on a ZooKeeper server, and how they take a lock from its holder.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use lock_runtime::{LockErrorKind, LockGuard, LockManager, backend::LockState};
use tokio::time::timeout;

use super::{LONG, SLACK, admin, connect, url};
use crate::support::{
    stopwatch::Moment,
    until,
    zookeeper_protocol::{self as zk, Client},
    zookeeper_server::{SESSION, ZooKeeperServer},
};

/// The path of the first contender for a lock.
fn holder(admin: &mut Client, lock: &str) -> String {
    let mut names = admin.children(lock).unwrap().unwrap();
    names.sort_by_key(|name| name.rsplit_once('-').unwrap().1.to_owned());
    format!("{lock}/{}", names[0])
}

/// The error, or the locks, of a scan.
async fn scan(locks: &LockManager, names: &str) -> Result<Vec<LockState>, lock_runtime::LockError> {
    let (mut found, mut scan) = (Vec::new(), locks.scan(names));
    while let Some(lock) = scan.next().await {
        found.push(lock?);
    }
    Ok(found)
}

async fn is_lost(guard: &LockGuard) {
    timeout(LONG, guard.lost()).await.expect("the holder is told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_of_another_library_is_shown_with_its_session_and_freed_by_force_alone() {
    const CURATOR: &str = "/lock:k/_c_01234567-89ab-cdef-0123-456789abcdef-lock-";
    let server = ZooKeeperServer::start("");
    let (locks, mut admin, mut other) = (connect(&server).await, admin(&server), admin(&server));
    admin.create("/lock:k", b"", zk::PERSISTENT).unwrap().unwrap();
    for (flags, data) in
        [(zk::EPHEMERAL_SEQUENTIAL, &b"10.0.0.5"[..]), (zk::PERSISTENT_SEQUENTIAL, b"1:2::3\n")]
    {
        let node = other.create(CURATOR, data, flags).unwrap().unwrap();
        let lock = locks.lock("k").wait(LONG).label("next");
        let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
        until("it waits", || {
            let count = admin.children("/lock:k").unwrap().unwrap().len();
            if count == 2 { Ok(()) } else { Err(count) }
        })
        .await;
        let state = locks.inspect("k").await.unwrap();
        let [shown] = &state.holders[..] else { panic!("{state:?}") };
        assert!(shown.is_foreign() && shown.token().is_none() && shown.since().is_some(), "{shown:?}");
        if flags == zk::EPHEMERAL_SEQUENTIAL {
            let client = format!("session {:#x} (10.0.0.5)", other.session());
            assert_eq!((shown.client(), shown.remaining()), (Some(&*client), None));
        } else {
            assert_eq!((shown.client(), shown.remaining()), (Some("(1:2::3_)"), Some(Duration::MAX)));
        }
        assert_eq!(state.waiters.iter().map(|waiter| waiter.label()).collect::<Vec<_>>(), [Some("next")]);
        let [found] = &scan(&locks, "k").await.unwrap()[..] else { panic!("one lock") };
        assert_eq!(found.holders, state.holders);
        assert!(locks.revoke_by_force("k", None).await.unwrap());
        let guard = timeout(LONG, waiter).await.expect("the waiter enters").unwrap();
        assert_eq!(admin.data(&node).unwrap(), Err(zk::NO_NODE));
        assert!(!locks.revoke_by_force("k", None).await.unwrap(), "a holder of ours");
        assert!(guard.is_valid());
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_overwritten_is_held_on_and_is_revoked_by_force_alone() {
    let server = ZooKeeperServer::start("");
    let (locks, operator, mut admin) = (connect(&server).await, connect(&server).await, admin(&server));
    let guard = locks.lock("k").acquire().await.unwrap();
    let token = guard.fencing_token();
    let node = holder(&mut admin, "/lock:k");
    // Before the node is watched, and while it is.
    for data in [&b"\x1b[2J"[..], b"1:revoked", b"", b"2:revoked:a,1@b"] {
        admin.set_data(&node, data).unwrap().unwrap();
        tokio::time::sleep(SESSION / 5).await;
        assert!(guard.is_valid(), "{data:?}");
        let state = operator.inspect("k").await.unwrap();
        assert!(state.holders[0].is_foreign(), "{state:?}");
        assert_eq!(operator.revoke("k", token).await.unwrap_err().kind(), LockErrorKind::Unsupported);
    }
    assert!(operator.revoke_by_force("k", None).await.unwrap());
    is_lost(&guard).await;
}

/// A mark that was made by another client which may write the node is a revocation like any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_is_seen_however_it_came_and_a_late_one_meets_no_later_grant() {
    let server = ZooKeeperServer::start("");
    let (locks, mut admin) = (connect(&server).await, admin(&server));
    let guard = locks.lock("k").acquire().await.unwrap();
    let node = holder(&mut admin, "/lock:k");
    let data = admin.data(&node).unwrap().unwrap();
    let marked = [b"1:revoked:", &data[2..]].concat();
    admin.set_data(&node, &marked).unwrap().unwrap();
    let began = Moment::now();
    is_lost(&guard).await;
    assert!(began.within(SESSION / 10 + SLACK), "{:?}", began.took());
    assert!(locks.inspect("k").await.unwrap().holders[0].is_revoked());
    drop(guard);
    let next = locks.lock("k").wait(LONG).acquire().await.unwrap();
    assert_eq!(admin.set_data(&node, &marked).unwrap(), Err(zk::NO_NODE));
    tokio::time::sleep(SESSION / 5).await;
    assert!(next.is_valid());
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_watched_for_waiters_only_while_its_holder_asks() {
    let server = ZooKeeperServer::start("");
    let locks = connect(&server).await;
    let guard = locks.lock("k").acquire().await.unwrap();
    let watches = async |expected: u64| {
        until("the watches", || match server.number("zk_watch_count") {
            count if count == expected => Ok(()),
            count => Err(count),
        })
        .await;
    };
    // Of the holder's own node, which an operator may change.
    watches(1).await;
    for _ in 0..3 {
        let is_wanted = tokio::select! {
            () = guard.wanted() => true,
            () = watches(2) => false,
        };
        assert!(!is_wanted, "no acquisition waits");
        watches(1).await;
    }
    guard.release().await.unwrap();
    watches(0).await;
}

/// The session has room for about 800 watches of paths as long as these.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_without_a_watch_learns_of_a_revocation_and_of_a_deletion() {
    const LOCKS: usize = 1_000;
    let server = ZooKeeperServer::start("");
    let (locks, operator) = (connect(&server).await.wait(LONG), connect(&server).await);
    let mut guards = Vec::with_capacity(LOCKS);
    for first in (0..LOCKS).step_by(100) {
        let lock = |number| locks.lock(format!("{number}"));
        let tasks: Vec<_> = (first..first + 100)
            .map(|number| {
                let lock = lock(number);
                tokio::spawn(async move { lock.acquire().await.unwrap() })
            })
            .collect();
        for task in tasks {
            guards.push(task.await.unwrap());
        }
    }
    let mut watched = 0;
    until("no further node is watched", || {
        let before = std::mem::replace(&mut watched, server.number("zk_watch_count"));
        std::thread::sleep(SESSION / 5);
        if watched > 0 && watched == before { Ok(()) } else { Err(watched) }
    })
    .await;
    assert_eq!(scan(&operator, "").await.unwrap().len(), LOCKS);
    let paths = server.ask("wchp").unwrap();
    let others: Vec<_> = (0..LOCKS).filter(|number| !paths.contains(&format!("/lock:{number}/"))).collect();
    assert!(others.len() > 100, "the test shows nothing: {watched} watches");
    // Few enough that no watch ends meanwhile, in whose place another one would come.
    let last = &others[others.len() - 20..];
    let began = Moment::now();
    for number in last {
        let (name, token) = (number.to_string(), guards[*number].fencing_token());
        let revoked = if number % 2 == 0 {
            operator.revoke(name, token).await
        } else {
            operator.revoke_by_force(name, token).await
        };
        assert!(revoked.unwrap(), "{number}");
    }
    for number in last {
        is_lost(&guards[*number]).await;
    }
    println!("{watched} watches; the last of 20 holders knew after {:?}", began.took());
    // Some hundred nodes are read in two heartbeats.
    assert!(began.within(SESSION / 10 * 4 + SLACK), "{:?}", began.took());
    assert_eq!(guards.iter().filter(|guard| !guard.is_valid()).count(), last.len());
    drop(guards);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_finds_thousands_of_locks_and_none_that_is_free() {
    const LOCKS: usize = 3_000;
    let server = ZooKeeperServer::start("");
    let (locks, mut admin) = (connect(&server).await, admin(&server));
    // The tests' own client makes them in few calls; each other lock is free.
    for first in (0..LOCKS).step_by(500) {
        let nodes: Vec<_> = (first..first + 500).map(|number| format!("/lock:user:{number}%2Fx")).collect();
        admin.create_all(&nodes, zk::PERSISTENT).unwrap().unwrap();
        let holders: Vec<_> = nodes.iter().step_by(2).map(|node| format!("{node}/_c_x-lock-")).collect();
        admin.create_all(&holders, zk::EPHEMERAL_SEQUENTIAL).unwrap().unwrap();
    }
    // Neither are these locks, nor do they end the scan.
    for other in ["/lock:user:%2f", "/lock:user:%", "/lock:~1", "/balance"] {
        admin.create(other, b"", zk::PERSISTENT).unwrap().unwrap();
        admin.create(&format!("{other}/x-0000000001"), b"", zk::PERSISTENT).unwrap().unwrap();
    }
    admin.create_for(zk::CREATE_AND_DELETE, "/lock:user:other", b"", zk::PERSISTENT).unwrap().unwrap();
    let found = scan(&locks, "user:").await.unwrap();
    assert_eq!(found.len(), LOCKS / 2);
    let found: BTreeSet<_> = found.iter().map(|lock| lock.key.as_str().to_owned()).collect();
    let expected = (0..LOCKS).step_by(2).map(|number| format!("user:{number}/x")).collect();
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_of_more_nodes_than_the_limit_says_so() {
    const LIMIT: usize = 100_000;
    let server = ZooKeeperServer::start("");
    let mut admin = admin(&server);
    admin.create("/many", b"", zk::PERSISTENT).unwrap().unwrap();
    for first in (0..LIMIT).step_by(5_000) {
        let nodes: Vec<_> = (first..first + 5_000).map(|number| format!("/many/{number}")).collect();
        admin.create_all(&nodes, zk::PERSISTENT).unwrap().unwrap();
    }
    let locks = LockManager::connect(&url(&server.address().to_string(), "/many")).await.unwrap();
    assert!(scan(&locks, "").await.unwrap().is_empty());
    let guard = locks.lock("k").acquire().await.unwrap();
    let error = scan(&locks, "").await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unsupported);
    assert!(error.to_string().contains("100001") && error.to_string().contains("100000"), "{error}");
    assert!(locks.inspect("k").await.unwrap().is_held());
    guard.release().await.unwrap();
}

/// How long the requests of another client take while a scan reads many locks, and without one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long; for figures"]
async fn the_requests_of_others_during_a_scan() {
    for count in [10_000, 25_000, 50_000] {
        let server = ZooKeeperServer::start("");
        let (mut admin, mut other) = (admin(&server), admin(&server));
        admin.create("/many", b"", zk::PERSISTENT).unwrap().unwrap();
        for first in (0..count).step_by(1_000) {
            let nodes: Vec<_> = (first..first + 1_000).map(|number| format!("/many/lock:{number}")).collect();
            admin.create_all(&nodes, zk::PERSISTENT).unwrap().unwrap();
            let holders: Vec<_> = nodes.iter().map(|node| format!("{node}/_c_x-lock-")).collect();
            admin.create_all(&holders, zk::EPHEMERAL_SEQUENTIAL).unwrap().unwrap();
        }
        let locks = LockManager::connect(&url(&server.address().to_string(), "/many")).await.unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let has_ended = Arc::clone(&ends);
        let before = slowest(&mut other, || true);
        let asking = std::thread::spawn(move || slowest(&mut other, || has_ended.load(Ordering::Relaxed)));
        let began = Instant::now();
        let found = scan(&locks, "").await.map(|found| found.len());
        ends.store(true, Ordering::Relaxed);
        let during = asking.join().unwrap();
        println!(
            "{count} locks: {found:?} in {:?}; the slowest requests of another client: {before:?} before, {during:?} \
             meanwhile",
            began.elapsed()
        );
    }
}

/// The median, the 99th percentile and the maximum of the times of requests, until `ends`.
fn slowest(client: &mut Client, ends: impl Fn() -> bool) -> [Duration; 3] {
    let mut took = Vec::new();
    while took.len() < 5_000 || !ends() {
        let asked = Instant::now();
        client.data("/many").unwrap().unwrap();
        took.push(asked.elapsed());
    }
    took.sort();
    [took[took.len() / 2], took[took.len() * 99 / 100], took[took.len() - 1]]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_changes_its_holder_all_the_time_is_scanned_inspected_and_revoked() {
    let server = ZooKeeperServer::start("");
    let operator = connect(&server).await;
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let locks = connect(&server).await.wait(LONG);
        tasks.push(tokio::spawn(async move {
            loop {
                let guard = locks.lock("k").acquire().await.unwrap();
                // It may have been revoked meanwhile.
                let _ = guard.release().await;
            }
        }));
    }
    let (mut seen, mut revoked) = (0, 0);
    for _ in 0..100 {
        let found = scan(&operator, "").await.unwrap();
        assert!(found.iter().all(LockState::is_held));
        seen += found.len();
        let state = operator.inspect("k").await.unwrap();
        if let Some(token) = state.holders.first().and_then(lock_runtime::LockHolder::token) {
            revoked += usize::from(operator.revoke("k", token).await.unwrap());
        }
    }
    println!("seen {seen} times, revoked {revoked} times");
    assert!(seen > 0);
    for task in tasks {
        assert!(!task.is_finished());
        task.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_names_the_holder_and_no_waiter_ahead() {
    let server = ZooKeeperServer::start("");
    let guard = connect(&server).await.lock("k").label("holder").acquire().await.unwrap();
    let mut admin = admin(&server);
    let last = connect(&server).await.wait(SESSION / 8);
    let error = last.lock("k").acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    let holder = error.holder().expect("the watch of its node has told");
    assert_eq!((holder.label(), holder.token()), (Some("holder"), Some(guard.fencing_token())));
    let lock = connect(&server).await.lock("k").label("waiter").wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until("it waits", || {
        let count = admin.children("/lock:k").unwrap().unwrap().len();
        if count == 2 { Ok(()) } else { Err(count) }
    })
    .await;
    let error = last.lock("k").acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    assert!(error.holder().is_none(), "{:?}", error.holder());
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
}

/// The rights are left out one at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_right_that_an_operator_lacks_is_named() {
    let server = ZooKeeperServer::start("");
    let address = server.address();
    let mut admin = admin(&server);
    admin.create("/of", b"", zk::PERSISTENT).unwrap().unwrap();
    let mine = LockManager::connect(&url(&format!("us:secret@{address}"), "/of")).await.unwrap();
    let others = LockManager::connect(&url(&format!("them:secret@{address}"), "/of")).await.unwrap();
    let guard = mine.lock("mine").label("ours").acquire().await.unwrap();
    let token = guard.fencing_token();
    // The lock of another user is neither shown nor in the way.
    let theirs = others.lock("theirs").acquire().await.unwrap();
    let found = scan(&others, "").await.unwrap();
    assert_eq!(found.iter().map(|lock| lock.key.as_str()).collect::<Vec<_>>(), ["theirs"]);
    theirs.release().await.unwrap();
    let names = |error: lock_runtime::LockError, right: &str| {
        assert_eq!(error.kind(), LockErrorKind::Backend);
        assert!(error.to_string().contains(right) && error.is_permanent(), "{right}: {error}");
    };
    names(others.inspect("mine").await.unwrap_err(), "`r` on the lock's node");
    names(others.revoke("mine", token).await.unwrap_err(), "`r` on the lock's node");
    names(others.revoke_by_force("mine", token).await.unwrap_err(), "`r` on the lock's node");

    // A lock's node that every client may read, with a holder that only its user may read.
    admin.create("/of/lock:open", b"", zk::PERSISTENT).unwrap().unwrap();
    let open = mine.lock("open").acquire().await.unwrap();
    admin.set_rights("/of/lock:open", zk::READ).unwrap().unwrap();
    let state = others.inspect("open").await.unwrap();
    assert!(state.holders[0].is_foreign() && state.holders[0].client().is_some(), "{state:?}");
    let token = open.fencing_token();
    names(others.revoke("open", token).await.unwrap_err(), "`r` on the holder's node");
    names(others.revoke_by_force("open", None).await.unwrap_err(), "`r` on the holder's node");
    names(others.revoke_by_force("open", token).await.unwrap_err(), "`d` on the lock's node");

    // A holder that every client may read, and none may change.
    admin.create("/of/lock:seen", b"", zk::PERSISTENT).unwrap().unwrap();
    let data = admin.create("/of/lock:seen/_c_x-lock-", b"", zk::EPHEMERAL_SEQUENTIAL).unwrap().unwrap();
    admin.set_data(&data, b"1:program,7@host,label").unwrap().unwrap();
    admin.set_rights(&data, zk::READ).unwrap().unwrap();
    let state = others.inspect("seen").await.unwrap();
    let shown = &state.holders[0];
    assert_eq!((shown.client(), shown.label()), (Some("program:7@host"), Some("label")));
    let token = shown.token().unwrap();
    names(others.revoke("seen", token).await.unwrap_err(), "`w` on the holder's node");

    // A chroot that may not be read.
    admin.set_rights("/of", zk::CREATE_AND_DELETE).unwrap().unwrap();
    names(scan(&mine, "").await.unwrap_err(), "`r` on the node below which the locks are");
    assert_eq!(mine.inspect("mine").await.unwrap().holders[0].label(), Some("ours"));
    assert!(mine.revoke("mine", guard.fencing_token()).await.unwrap());
    is_lost(&guard).await;
    assert!(open.is_valid());
}
