//! Nodes that hang, die, forget or come back, while a majority goes on.

use std::time::{Duration, Instant};

use lock_runtime::{LockErrorKind, LockManager};

use super::{LONG, MS, Quorum};
use crate::support::{
    proxy::{Flow, Upstream, Way},
    repeat,
    stopwatch::{Moment, Took},
    until,
};

/// The times of `count` acquisitions with their releases, in ascending order.
async fn cycles(locks: &LockManager, count: usize) -> Vec<Took> {
    let mut took = Vec::new();
    for number in 0..count {
        let began = Moment::now();
        locks.lock(format!("user:{number}")).acquire().await.unwrap().release().await.unwrap();
        took.push(began.took());
    }
    took.sort_by_key(|took| took.real);
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_hung_node_costs_nothing() {
    const COUNT: usize = 400;
    for hung in 0..3 {
        repeat(3, async || {
            let quorum = Quorum::start(3);
            let locks = quorum.client().await;
            let healthy = cycles(&locks, COUNT).await;
            let guard = locks.lock("held").ttl(1_000 * MS).acquire().await.unwrap();
            quorum.nodes[hung].server.pause();
            let began = Instant::now();
            let with_one_hung = cycles(&locks, COUNT).await;
            // Many at once.
            let many: Vec<_> = (0..10)
                .map(|number| {
                    let lock = locks.lock(format!("at-once:{number}"));
                    tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
                })
                .collect();
            let at_once = Moment::now();
            for one in many {
                one.await.unwrap();
            }
            let at_once = at_once.took();
            let (half, most) = (COUNT / 2, COUNT * 99 / 100);
            let figures = format!(
                "node {hung} hung: p50 {:?} -> {:?}, p99 {:?} -> {:?}; ten at once {at_once:?}",
                healthy[half], with_one_hung[half], healthy[most], with_one_hung[most]
            );
            println!("{figures}");
            assert!(with_one_hung[most].within(100 * MS), "{:?}", with_one_hung[most]);
            assert!(at_once.within(200 * MS), "{at_once:?}");
            while began.elapsed() < 3_000 * MS {
                assert!(guard.is_valid(), "lost after {:?}", began.elapsed());
                tokio::time::sleep(20 * MS).await;
            }
            guard.release().await.unwrap();
            // The usual figures are within 10 %, and beside other tests, a series may take twice as long as the one before.
            if with_one_hung[half].within(healthy[half].real * 2) { Ok(()) } else { Err(figures) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_does_not_wait_for_a_hung_node() {
    for hung in 0..3 {
        let quorum = Quorum::start(3);
        let locks = quorum.client().await;
        let guards = [locks.lock("k").acquire().await.unwrap(), locks.lock("l").acquire().await.unwrap()];
        quorum.nodes[hung].server.pause();
        drop(guards);
        let began = Moment::now();
        locks.shutdown().await;
        let took = began.took();
        println!("node {hung} hung: shut down after {took:?}");
        assert!(took.within(500 * MS), "{took:?}");
        let others = (0..3).filter(|node| *node != hung);
        assert!(others.into_iter().all(|node| quorum.nodes[node].holder().is_none()), "left behind");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_five_may_die_and_a_third_is_an_outage_that_heals() {
    let mut quorum = Quorum::start(5);
    let locks = quorum.client().await;
    for dead in 0..2 {
        quorum.nodes[dead].server.kill();
    }
    let guard = locks.lock("k").acquire().await.unwrap();
    assert_eq!(quorum.nodes[2..].iter().filter(|node| node.holder().is_some()).count(), 3);
    guard.release().await.unwrap();
    for hangs in [true, false] {
        if hangs {
            // Its answer is missing after the other nodes have refused or granted the lock.
            quorum.nodes[2].server.pause();
        } else {
            quorum.nodes[2].server.kill();
        }
        for wait in [300, 1_200] {
            let began = Moment::now();
            let error = locks.lock("k").wait(wait * MS).acquire().await.unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
            assert!(error.to_string().contains("of 5 nodes cannot be used, and 3 must agree"), "{error}");
            assert!(began.within(wait * MS + 1_000 * MS), "{:?}", began.took());
        }
        until("the two that granted it are free again", || match &quorum.nodes[3..] {
            nodes if nodes.iter().all(|node| node.holder().is_none()) => Ok(()),
            _ => Err(()),
        })
        .await;
        quorum.nodes[2].server.bring_back();
        locks.lock("k").wait(LONG).acquire().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn what_a_minority_granted_is_free_when_the_attempt_ends() {
    let quorum = Quorum::start(3);
    let locks = quorum.client().await;
    for node in &quorum.nodes[..2] {
        node.server.command(&["SET", "lock:k", "another client", "PX", "20000"]);
    }
    for _ in 0..20 {
        assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
        // The third node may have been asked last.
        until("the third is free", || quorum.nodes[2].holder().map_or(Ok(()), Err)).await;
    }
    assert_eq!(
        quorum.holders()[..2],
        [const { Some("another client") }; 2].map(|owner| owner.map(str::to_owned))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_reaches_a_node_that_was_away() {
    for cut in [false, true] {
        let mut quorum = Quorum::start(3);
        let locks = quorum.client().await;
        let guard = locks.lock("k").ttl(LONG).acquire().await.unwrap();
        quorum.held_everywhere().await;
        if cut {
            quorum.nodes[1].proxy.refuse();
            quorum.nodes[1].proxy.reset();
        } else {
            quorum.nodes[1].server.pause();
        }
        guard.release().await.unwrap();
        // Longer than a request is waited for.
        tokio::time::sleep(1_500 * MS).await;
        quorum.nodes[1].server.bring_back();
        quorum.nodes[1].proxy.heal();
        let healed = Instant::now();
        quorum.free_everywhere().await;
        println!("free {:?} after the node was back", healed.elapsed());
        assert!(healed.elapsed() < 4_000 * MS, "{:?}", healed.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_is_not_repeated_for_longer_than_its_lease() {
    let quorum = Quorum::start(3);
    let locks = quorum.client().await;
    let guard = locks.lock("k").ttl(600 * MS).acquire().await.unwrap();
    quorum.held_everywhere().await;
    let away = &quorum.nodes[1];
    away.proxy.refuse();
    away.proxy.reset();
    guard.release().await.unwrap();
    tokio::time::sleep(2_500 * MS).await;
    let before = away.scripts();
    away.proxy.heal();
    tokio::time::sleep(1_500 * MS).await;
    assert_eq!(away.scripts() - before, 0, "releases of a lease that has ended");
}

/// A release that waits in a batch with the next acquisition of the same lock is executed first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_taken_again_at_once_is_on_all_nodes() {
    let quorum = Quorum::start(3);
    let locks = quorum.client().await;
    // The operations of several cycles wait for this node together.
    quorum.nodes[2].proxy.set(Way::ToClient, Flow::Delay(30 * MS));
    for round in 0..300 {
        // It is not renewed, and the nodes are not joined, before the test ends.
        let guard = locks.lock("k").ttl(Duration::from_mins(2)).acquire().await.unwrap();
        if round % 10 == 9 {
            quorum.held_everywhere().await;
        }
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_swap_their_addresses_are_nodes_again() {
    let quorum = Quorum::start(3);
    let locks = quorum.client().await;
    let sockets = [0, 1].map(|node: usize| quorum.nodes[node].server.socket().to_owned());
    for (node, socket) in [1, 0].into_iter().zip(sockets) {
        quorum.nodes[node].proxy.lead_to(Upstream::Unix(socket));
    }
    for node in &quorum.nodes[..2] {
        node.proxy.cut();
    }
    // The two of them have to decide alone.
    quorum.nodes[2].proxy.refuse();
    quorum.nodes[2].proxy.reset();
    let began = Instant::now();
    // A request may have reached a server whose connection was being cut; its release goes to the other one.
    while let Err(error) = locks.lock("k").ttl(1_000 * MS).acquire().await.map(drop) {
        assert!(began.elapsed() < 5_000 * MS, "{error}");
        tokio::time::sleep(20 * MS).await;
    }
}

/// A node may have connections to two servers, as after its address was given to another server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_one_node_still_uses_is_no_other_node() {
    let quorum = Quorum::start(3);
    let locks = quorum.client().await;
    locks.lock("before").acquire().await.unwrap().release().await.unwrap();
    let sockets = [0, 2].map(|node: usize| quorum.nodes[node].server.socket().to_owned());
    for (node, socket) in [2, 0].into_iter().zip(sockets) {
        quorum.nodes[node].proxy.lead_to(Upstream::Unix(socket));
    }
    quorum.nodes[2].proxy.cut();
    quorum.nodes[1].proxy.refuse();
    quorum.nodes[1].proxy.reset();
    // Another runtime connects node 0 to the third server, while this runtime still has its connection to the first.
    let elsewhere = locks.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _ = runtime.block_on(elsewhere.lock("elsewhere").try_acquire());
    })
    .join()
    .unwrap();
    for _ in 0..5 {
        let Ok(guard) = locks.lock("k").ttl(1_000 * MS).wait(200 * MS).acquire().await else { continue };
        assert!(quorum.held() > 1, "granted by one of three servers");
        guard.release().await.unwrap();
    }
}
