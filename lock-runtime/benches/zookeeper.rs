//! ZooKeeper: acquiring and releasing a lock against the driver's bare calls, and the hand-over against kazoo's.
//!
//! `cargo bench -p lock-runtime-benches --bench zookeeper`, without arguments. kazoo takes part where `LOCK_TEST_KAZOO`
//! names a Python that has it, as `tests/run interop` installs.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::too_many_lines,
    reason = "a benchmark"
)]

mod support;
#[allow(dead_code, unreachable_pub, reason = "shared with the tests")]
#[path = "../../tests/support/mod.rs"]
mod tests_support;

use std::{env, process::Command, time::Duration};

use lock_runtime::LockManager;
use support::{
    latency::{HAND_OVERS, cycles, hand_overs, latency, rounds, row},
    median,
    program::Program,
    publish, ratios,
    targets::Target,
};
use tests_support::zookeeper_server::ZooKeeperServer;
use zookeeper_client as zk;

const ROUNDS: usize = 9;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let server = ZooKeeperServer::start("");
    let address = server.address().to_string();
    let locks = LockManager::connect(&format!("zookeeper://{address}/ours"))
        .await
        .unwrap()
        .wait(Duration::from_mins(1));
    let client = zk::Client::connect(&address).await.unwrap();
    let acls = zk::Acls::anyone_all();
    client.create("/raw", b"", &zk::CreateMode::Persistent.with_acls(acls)).await.unwrap();
    let node = zk::CreateMode::EphemeralSequential.with_acls(acls);
    let lock = locks.lock("k");
    let raw = async || {
        let (_, number) = client.create("/raw/_c_0-lock-", b"1", &node).await.unwrap();
        let children = client.list_children("/raw").await.unwrap();
        assert_eq!(children.len(), 1);
        client.delete(&format!("/raw/_c_0-lock-{number}"), None).await.unwrap();
    };
    let ours = async || lock.acquire().await.unwrap().release().await.unwrap();
    let [raw, cycled] = rounds(ROUNDS, async || [cycles(&raw).await, cycles(&ours).await]).await;
    let mut rows = vec![
        row("bare calls", "create, list, delete", &raw, &raw),
        row("lock-runtime", "acquire, release", &cycled, &raw),
    ];
    let two = [&locks, &LockManager::connect(&format!("zookeeper://{address}/ours")).await.unwrap()]
        .map(|locks| locks.clone().wait(Duration::from_mins(1)).lock("handed over"));
    let mut kazoo = env::var_os("LOCK_TEST_KAZOO")
        .map(|python| Program::start(&mut Command::new(python), "kazoo_hand_over.py", &[&address]));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let our_round = hand_overs(&two).await;
        let their_round = kazoo.as_mut().map(|kazoo| kazoo.ask(&HAND_OVERS.to_string()));
        if round > 0 {
            ours.push(our_round);
            theirs.extend(their_round);
        }
    }
    let medians = |rounds: &[Vec<f64>]| rounds.iter().map(|micros| median(micros)).collect::<Vec<_>>();
    let our_medians = medians(&ours);
    rows.push(latency("lock-runtime", &ours, &our_medians));
    if !theirs.is_empty() {
        rows.push(latency("kazoo", &theirs, &our_medians));
    }
    publish(
        "zookeeper",
        &["who", "what", "a second", "of the first [95 %]", "p50 µs [least–most]", "p99 µs"],
        &rows,
        support::plot::NONE,
        &[Target::at_least("cycles/s, of the bare calls", ratios(&cycled.rates, &raw.rates), 0.9)],
    );
}
