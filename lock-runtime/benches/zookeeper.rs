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

use std::{
    env,
    process::Command,
    time::{Duration, Instant},
};

use lock_runtime::LockManager;
use support::{median, program::Program, publish, ratios, targets::Target};
use tests_support::zookeeper_server::ZooKeeperServer;
use zookeeper_client as zk;

const ROUNDS: usize = 9;
const LENGTH: Duration = Duration::from_millis(1500);
/// In each round.
const HAND_OVERS: usize = 150;

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
    let (mut raw_rates, mut our_rates) = (Vec::new(), Vec::new());
    let (mut raw_p50, mut our_p50) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (rate, p50) = cycles(&raw).await;
        let (our_rate, our_median) = cycles(&ours).await;
        // The first round warms up the virtual machine.
        if round > 0 {
            raw_rates.push(rate);
            our_rates.push(our_rate);
            raw_p50.push(p50);
            our_p50.push(our_median);
        }
    }
    let mut rows = vec![
        row("bare calls", "create, list, delete", &raw_rates, &raw_rates, &raw_p50),
        row("lock-runtime", "acquire, release", &our_rates, &raw_rates, &our_p50),
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
        &[Target::at_least("cycles/s, of the bare calls", ratios(&our_rates, &raw_rates), 0.9)],
    );
}

fn row(who: &str, what: &str, rates: &[f64], base: &[f64], p50: &[f64]) -> Vec<String> {
    let rate = format!("{:.0}", median(rates));
    vec![who.into(), what.into(), rate, ratios(rates, base).to_string(), spread(p50), "–".into()]
}

fn latency(who: &str, rounds: &[Vec<f64>], base: &[f64]) -> Vec<String> {
    let medians: Vec<f64> = rounds.iter().map(|micros| median(micros)).collect();
    let mut all = rounds.concat();
    all.sort_by(f64::total_cmp);
    let p99 = all[all.len() * 99 / 100];
    let of = ratios(&medians, base).to_string();
    vec![who.into(), "hand-over".into(), "–".into(), of, spread(&medians), format!("{p99:.0}")]
}

/// The median of the rounds, the least and the most.
fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    format!("{:.0} [{least:.0}–{most:.0}]", median(values))
}

/// Cycles per second, and the median time of one in µs.
async fn cycles(cycle: &impl AsyncFn()) -> (f64, f64) {
    let began = Instant::now();
    let mut took = Vec::new();
    while began.elapsed() < LENGTH {
        let before = Instant::now();
        cycle().await;
        took.push(before.elapsed().as_secs_f64() * 1e6);
    }
    (took.len() as f64 / began.elapsed().as_secs_f64(), median(&took))
}

/// Times from the release by one client to the entry of the other, which waits, in µs.
async fn hand_overs(two: &[lock_runtime::Lock; 2]) -> Vec<f64> {
    let mut took = Vec::new();
    let mut guard = two[0].acquire().await.unwrap();
    for number in 0..HAND_OVERS {
        let next = two[(number + 1) % 2].clone();
        let waiter = tokio::spawn(async move { (next.acquire().await.unwrap(), Instant::now()) });
        tokio::time::sleep(Duration::from_millis(5)).await;
        let released = Instant::now();
        let release = tokio::spawn(guard.release());
        let (next, entered) = waiter.await.unwrap();
        release.await.unwrap().unwrap();
        took.push(entered.duration_since(released).as_secs_f64() * 1e6);
        guard = next;
    }
    guard.release().await.unwrap();
    took
}
