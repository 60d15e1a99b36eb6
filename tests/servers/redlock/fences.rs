//! The fences of a quorum: usually the nodes agree on them, otherwise the largest is written back.

use std::time::{Duration, Instant, SystemTime};

use super::{LONG, MS, Node, Quorum};
use crate::support::proxy::{Flow, Way};

/// Without waiters and faults, a cycle is one round trip to take and one to release.
#[tokio::test]
async fn nodes_agree_on_fences_without_a_second_round_trip() {
    const CYCLES: u64 = 200;
    let quorum = Quorum::start(3);
    let locks = quorum.client().await;
    let before: u64 = quorum.nodes.iter().map(Node::scripts).sum();
    let mut last = None;
    for _ in 0..CYCLES {
        let guard = locks.lock("k").acquire().await.unwrap();
        assert!(last < Some(guard.fencing_token()));
        last = Some(guard.fencing_token());
        guard.release().await.unwrap();
    }
    let scripts = quorum.nodes.iter().map(Node::scripts).sum::<u64>() - before;
    println!("{scripts} scripts on three nodes in {CYCLES} cycles");
    assert!(scripts <= 2 * 3 * CYCLES + CYCLES / 2, "{scripts} scripts in {CYCLES} cycles");
}

#[tokio::test]
async fn fences_on_which_nodes_disagree_are_written_back() {
    let quorum = Quorum::start(3);
    let locks = quorum.client().await;
    for round in 0..20 {
        disagree(&quorum, round);
        let guard = locks.lock("k").wait(LONG).acquire().await.unwrap();
        let token = guard.fencing_token().get() >> 11;
        let known = quorum.nodes.iter().filter(|node| node.counter() >= token).count();
        assert!(known >= 2, "{token} is on {known} nodes");
        guard.release().await.unwrap();
        quorum.free_everywhere().await;
    }
}

/// Sets the counters of `k` to different numbers ahead of the time, by this many seconds and a few more.
fn disagree(quorum: &Quorum, ahead: u64) {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    for (number, node) in (1..).zip(&quorum.nodes) {
        let counter = now + Duration::from_secs(10 * ahead + number);
        node.server.command(&["SET", "lock:{lock:k}:~1:fence", &counter.as_micros().to_string()]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_nodes_lost_before_its_fence_was_written_back_is_none() {
    let quorum = Quorum::start(3);
    let locks = quorum.client().await;
    disagree(&quorum, 1);
    // The answers come late, and meanwhile the leases are lost.
    for node in &quorum.nodes {
        node.proxy.set(Way::ToClient, Flow::Delay(200 * MS));
    }
    let lock = locks.lock("k").ttl(LONG).wait(LONG);
    let acquired = tokio::spawn(async move { lock.acquire().await.unwrap() });
    quorum.held_everywhere().await;
    for node in &quorum.nodes {
        node.server.command(&["SET", "lock:k", "another client", "PX", "1000"]);
    }
    let began = Instant::now();
    let guard = acquired.await.unwrap();
    assert!(began.elapsed() > 900 * MS, "granted while another client held it: {:?}", began.elapsed());
    for node in &quorum.nodes {
        node.proxy.heal();
    }
    guard.release().await.unwrap();
}
