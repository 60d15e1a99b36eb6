//! Renewals: what a node has lost is given to it again, and what a majority has lost is lost.

use std::time::{Duration, Instant};

use lock_runtime::LockManager;

use super::{LONG, MS, Quorum};
use crate::support::{
    proxy::{Flow, Proxy, Upstream, Way},
    repeat, until,
};

const LEASE: Duration = Duration::from_millis(1_500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_lost_their_data_one_after_the_other_cost_no_hold() {
    let mut quorum = Quorum::start(3);
    let locks = quorum.client().await;
    let guard = locks.lock("k").ttl(LEASE).acquire().await.unwrap();
    let token = guard.fencing_token().get() >> 11;
    for node in 0..3 {
        quorum.held_everywhere().await;
        quorum.nodes[node].server.restart();
        assert_eq!(quorum.nodes[node].holder(), None);
    }
    quorum.held_everywhere().await;
    for node in &quorum.nodes {
        assert!(node.counter() >= token, "its counter is not raised: {} < {token}", node.counter());
    }
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    quorum.free_everywhere().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_a_majority_lost_is_lost_and_not_created_again() {
    let quorum = Quorum::start(3);
    let locks = quorum.client().await;
    let guard = locks.lock("k").ttl(LEASE).acquire().await.unwrap();
    // The third grant may come after the acquisition's end, and be the one that makes a majority again.
    quorum.held_everywhere().await;
    for node in &quorum.nodes[..2] {
        node.server.command(&["DEL", "lock:k"]);
    }
    let began = Instant::now();
    tokio::time::timeout(2 * LEASE, guard.lost()).await.expect("it is lost");
    assert!(began.elapsed() < LEASE, "{:?}", began.elapsed());
    drop(guard);
    for _ in 0..50 {
        assert_eq!(quorum.holders()[..2], [None, None]);
        tokio::time::sleep(20 * MS).await;
    }
    until("the third is free", || quorum.nodes[2].holder().map_or(Ok(()), Err)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_newer_grant_is_not_joined() {
    let quorum = Quorum::start(3);
    let locks = quorum.client().await;
    let guard = locks.lock("k").ttl(LEASE).acquire().await.unwrap();
    quorum.held_everywhere().await;
    let newer = (guard.fencing_token().get() >> 11) + 1;
    quorum.nodes[0].server.command(&["SET", "lock:{lock:k}:~1:fence", &newer.to_string()]);
    quorum.nodes[0].server.command(&["DEL", "lock:k"]);
    let began = Instant::now();
    while began.elapsed() < 2 * LEASE {
        assert_eq!(quorum.nodes[0].holder(), None);
        assert!(guard.is_valid(), "a majority still has it");
        tokio::time::sleep(20 * MS).await;
    }
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_stalls_on_one_node_takes_nothing_from_the_hold() {
    let quorum = Quorum::start(3);
    let locks = quorum.client().await;
    let guard = locks.lock("k").ttl(LEASE).acquire().await.unwrap();
    let other = quorum.client().await;
    let began = Instant::now();
    while began.elapsed() < 4 * LEASE {
        // Each in turn is away for longer than it is waited for.
        let node = &quorum.nodes[usize::try_from(began.elapsed().as_millis() / 1_000).unwrap() % 3];
        node.proxy.black_hole();
        tokio::time::sleep(700 * MS).await;
        node.proxy.heal();
        assert!(guard.is_valid(), "lost after {:?}", began.elapsed());
        assert!(other.lock("k").try_acquire().await.unwrap().is_none());
        tokio::time::sleep(300 * MS).await;
    }
    // The client's own connections may be mute by now, and its release is repeated over new ones.
    drop(guard);
    other.lock("k").wait(LONG).acquire().await.unwrap().release().await.unwrap();
}

/// A request may reach its node after the client has seen the end of the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_joined_after_the_release_is_freed_again() {
    const LEASE: Duration = Duration::from_secs(6);
    let quorum = Quorum::start(3);
    let node = &quorum.nodes[2];
    let far = Proxy::start(Upstream::Unix(node.server.socket().into()));
    let url = format!("redlock://{}?durable=true&node_timeout=2s", quorum.addresses());
    // On a busy machine, the request may come too late to be executed.
    repeat(5, async || {
        node.proxy.lead_to(Upstream::Tcp(far.address()));
        let locks = LockManager::connect(&url).await.unwrap();
        let guard = locks.lock("k").ttl(LEASE).acquire().await.unwrap();
        quorum.held_everywhere().await;
        node.server.command(&["DEL", "lock:k"]);
        // The renewal reaches the node, and the request to join the node does not.
        far.set(Way::ToClient, Flow::Hold);
        let scripts = node.scripts();
        until("it is renewed", || if node.scripts() > scripts { Ok(()) } else { Err(()) }).await;
        let sent = node.proxy.bytes(Way::ToServer);
        far.set(Way::ToServer, Flow::Hold);
        far.set(Way::ToClient, Flow::Pass);
        let is_sent = || node.proxy.bytes(Way::ToServer) > sent;
        until("the node is to be joined", || if is_sent() { Ok(()) } else { Err(()) }).await;
        // The first proxy has counted the request, and may not have passed it on to the other one.
        tokio::time::sleep(100 * MS).await;
        node.proxy.lead_to(Upstream::Unix(node.server.socket().into()));
        node.proxy.cut();
        tokio::time::sleep(100 * MS).await;
        let scripts = node.scripts();
        guard.release().await.unwrap();
        until("the node was asked", || if node.scripts() > scripts { Ok(()) } else { Err(()) }).await;
        far.heal();
        let healed = Instant::now();
        while node.holder().is_none() && healed.elapsed() < Duration::from_secs(1) {
            tokio::time::sleep(MS).await;
        }
        let was_joined = node.holder().is_some();
        let began = Instant::now();
        quorum.free_everywhere().await;
        locks.shutdown().await;
        if !was_joined {
            return Err("the node is not joined".to_owned());
        }
        assert!(began.elapsed() < LEASE / 2, "only the end of the lease freed it: {:?}", began.elapsed());
        Ok(())
    })
    .await;
}
