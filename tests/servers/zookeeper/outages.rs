//! Holds and queue entries while the server, or the network to it, is unavailable.

use std::time::{Duration, Instant};

use lock_runtime::{LockErrorKind, LockManager};

use super::{LONG, MOMENT, SLACK, admin, connect, connect_soon, url};
use crate::support::{
    proxy::{Flow, Proxy, Upstream, Way},
    stopwatch::Moment,
    until,
    zookeeper_server::{SESSION, TICK, ZooKeeperServer},
};

/// A mute server costs the driver the time to notice it, and that of an attempt that begins before it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mute_server_for_three_eighths_of_a_session_costs_no_lock() {
    let server = ZooKeeperServer::start("");
    let proxy = Proxy::start(Upstream::Tcp(server.address()));
    let session = 3 * SESSION;
    let url = format!("zookeeper://{}?session_timeout={}ms", proxy.address(), session.as_millis());
    let locks = connect_soon(&url).await;
    let guard = locks.lock("k").wait(LONG).acquire().await.unwrap();
    for _ in 0..2 {
        // Until a heartbeat proves another deadline.
        tokio::time::sleep(session / 2).await;
        proxy.black_hole();
        tokio::time::sleep(session * 3 / 8).await;
        proxy.heal();
        let healed = Instant::now();
        while healed.elapsed() < session * 5 / 8 {
            assert!(guard.is_valid(), "lost {:?} after the healing", healed.elapsed());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loss_is_signalled_before_the_next_one_holds_and_to_all_guards_at_once() {
    let server = ZooKeeperServer::start("");
    let proxy = Proxy::start(Upstream::Tcp(server.address()));
    let cut_off = LockManager::connect(&url(&proxy.address().to_string(), "")).await.unwrap();
    let other = connect(&server).await;
    for _ in 0..2 {
        let mut guards = Vec::new();
        for name in ["a", "b", "c"] {
            guards.push(cut_off.lock(name).wait(LONG).acquire().await.unwrap());
        }
        let lock = other.lock("a").wait(LONG);
        let next = tokio::spawn(async move { (lock.acquire().await.unwrap(), Moment::now()) });
        tokio::time::sleep(SESSION / 4).await;
        let began = Moment::now();
        proxy.black_hole();
        let told: Vec<_> = guards
            .iter()
            .map(|guard| {
                let lost = guard.lost();
                tokio::spawn(async move {
                    lost.await;
                    Moment::now()
                })
            })
            .collect();
        let mut moments = Vec::new();
        for told in told {
            moments.push(told.await.unwrap());
        }
        assert!(guards.iter().all(|guard| !guard.is_valid()));
        moments.sort_unstable();
        let (first, last) = (moments[0], moments[2]);
        assert!(last.since(first).within(SLACK), "not at once: {:?}", last.since(first));
        assert!(last.since(began).within(SESSION), "after {:?}", last.since(began));
        let (guard, entered) = next.await.unwrap();
        assert!(last.is_before(entered), "the next one held it before the loss was signalled");
        println!("lost after {:?}, held by the next one after {:?}", last.since(began), entered.since(began));
        proxy.heal();
        // The session has expired, so a new one is made.
        assert!(guards.iter().all(|guard| !guard.is_valid()), "revived");
        for guard in guards {
            assert_eq!(guard.release().await.unwrap_err().kind(), LockErrorKind::Lost);
        }
        guard.release().await.unwrap();
        cut_off.lock("a").wait(LONG).acquire().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_comes_back_in_time_keeps_its_locks_and_its_places() {
    // Connecting to a busy server takes seconds, which must be a small part of the session.
    const SESSION: Duration = Duration::from_secs(12);
    let server = ZooKeeperServer::start("");
    let proxy = Proxy::start(Upstream::Tcp(server.address()));
    let url = format!("zookeeper://{}?session_timeout={}ms", proxy.address(), SESSION.as_millis());
    let ours = LockManager::connect(&url).await.unwrap();
    let other = connect(&server).await;
    let held = ours.lock("held").acquire().await.unwrap();
    let theirs = other.lock("wanted").acquire().await.unwrap();
    let lock = ours.lock("wanted").wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    let mut admin = admin(&server);
    let mut children = move || admin.children("/lock:wanted").unwrap().unwrap();
    until("it waits", || if children().len() == 2 { Ok(()) } else { Err(()) }).await;
    let before = children();
    for _ in 0..3 {
        proxy.refuse();
        proxy.reset();
        tokio::time::sleep(SESSION / 8).await;
        proxy.heal();
        tokio::time::sleep(SESSION / 2).await;
        assert!(held.is_valid());
    }
    let mut now = children();
    now.sort_unstable();
    let mut then = before;
    then.sort_unstable();
    assert_eq!(now, then, "the place was given up");
    theirs.release().await.unwrap();
    let released = Moment::now();
    waiter.await.unwrap().release().await.unwrap();
    assert!(released.within(SLACK), "{:?}", released.took());
    held.release().await.unwrap();
}

/// The driver sends the watches of a session again, in messages that overwrite each other if one is not enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_connection_costs_none_of_thousands_of_locks() {
    const LOCKS: usize = 2_500;
    const SESSION: Duration = Duration::from_secs(12);
    let server = ZooKeeperServer::start("");
    let proxy = Proxy::start(Upstream::Tcp(server.address()));
    let url = format!("zookeeper://{}?session_timeout={}ms", proxy.address(), SESSION.as_millis());
    let locks = LockManager::connect(&url).await.unwrap().wait(LONG);
    let mut guards = Vec::with_capacity(LOCKS);
    for first in (0..LOCKS).step_by(100) {
        let tasks: Vec<_> = (first..first + 100)
            .map(|number| {
                let lock = locks.lock(format!("user:{number:06}"));
                tokio::spawn(async move { lock.acquire().await.unwrap() })
            })
            .collect();
        for task in tasks {
            guards.push(task.await.unwrap());
        }
    }
    // Until heartbeats have watched the holds.
    tokio::time::sleep(SESSION / 4).await;
    let watched = server.number("zk_watch_count");
    assert!(watched > 100, "the test shows nothing: {watched} watches");
    proxy.reset();
    tokio::time::sleep(SESSION * 5 / 4).await;
    let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
    assert_eq!(lost, 0, "lost, of {watched} watched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_free_within_a_session_and_two_ticks_after_its_client_vanished() {
    let server = ZooKeeperServer::start("");
    // A machine that is gone, and a process that was killed: its connections are closed, but its session lives.
    for killed in [false, true] {
        let proxy = Proxy::start(Upstream::Tcp(server.address()));
        let vanishing = LockManager::connect(&url(&proxy.address().to_string(), "")).await.unwrap();
        let other = connect(&server).await;
        let guard = vanishing.lock("k").acquire().await.unwrap();
        let lock = other.lock("k").wait(LONG);
        let next = tokio::spawn(async move { (lock.acquire().await.unwrap(), Moment::now()) });
        tokio::time::sleep(SESSION / 2).await;
        if killed {
            proxy.refuse();
            proxy.cut();
        } else {
            proxy.black_hole();
        }
        let vanished = Moment::now();
        let (next, entered) = next.await.unwrap();
        println!("free after {:?}", entered.since(vanished));
        assert!(entered.since(vanished).within(SESSION + 2 * TICK + MOMENT), "{:?}", entered.since(vanished));
        assert!(!guard.is_valid() && next.fencing_token() > guard.fencing_token());
        next.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_whose_session_ends_under_it_is_made_in_another_one() {
    let server = ZooKeeperServer::start("");
    let proxy = Proxy::start(Upstream::Tcp(server.address()));
    let url = url(&proxy.address().to_string(), "") + "&response_timeout=30s";
    let locks = LockManager::connect(&url).await.unwrap();
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    proxy.set(Way::ToClient, Flow::Hold);
    let lock = locks.lock("k");
    let attempt = tokio::spawn(async move { lock.try_acquire().await });
    let mut admin = admin(&server);
    // The node of a lock may disappear when it is empty: the server checks for such nodes once a minute.
    let mut children = || admin.children("/lock:k").unwrap().map_or(0, |children| children.len());
    until("it was made", || if children() == 1 { Ok(()) } else { Err(()) }).await;
    proxy.refuse();
    proxy.reset();
    until("its session has ended", || if children() == 0 { Ok(()) } else { Err(()) }).await;
    proxy.heal();
    attempt.await.unwrap().unwrap().expect("no other client wants it").release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_outlasts_an_outage_that_no_hold_survives() {
    // On a busy machine the pause may last longer than the session.
    for _ in 0..5 {
        if place_outlasts_an_outage().await {
            return;
        }
    }
    panic!("no session survived");
}

/// Returns false if the servers ended a session.
async fn place_outlasts_an_outage() -> bool {
    const SESSION: Duration = Duration::from_secs(8);
    let mut server = ZooKeeperServer::start("");
    let url = format!("zookeeper://{}?session_timeout=8s", server.address());
    let holder = LockManager::connect(&url).await.unwrap();
    let waiter = LockManager::connect(&url).await.unwrap().wait(LONG);
    let guard = holder.lock("k").acquire().await.unwrap();
    let mut before = admin(&server);
    let mut children = || before.children("/lock:k").unwrap().unwrap();
    let first = children().remove(0);
    let lock = waiter.lock("k");
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until("it waits", || if children().len() == 2 { Ok(()) } else { Err(()) }).await;
    let place = children().into_iter().filter(|name| *name != first).collect::<Vec<_>>();
    tokio::time::sleep(SESSION / 2).await;
    server.pause();
    tokio::time::sleep(SESSION * 3 / 4).await;
    server.bring_back();
    assert!(!guard.is_valid());
    drop(guard);
    let entered = waiting.await.unwrap();
    let now = admin(&server).children("/lock:k").unwrap().unwrap();
    if server.number("zk_stale_sessions_expired") > 0 {
        return false;
    }
    assert_eq!(now, place, "it contended anew");
    entered.release().await.unwrap();
    true
}
