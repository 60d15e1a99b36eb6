//! The example `bank`, four processes, while slots move between the servers of its locks and while their primary is replaced.

use std::{
    cell::RefCell,
    env,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::{Failed, Trial};

use crate::{
    failovers::{
        CALM,
        servers::{Servers, Way},
    },
    support::{
        PATIENCE,
        redis_cluster::{self, RedisCluster},
        redis_sentinel,
    },
};

/// Requests in each of its two phases: under the lock, more than it answers during one change.
const REQUESTS: &str = "36000";
/// After a failover by Sentinels, waiters of a busy lock wait for the end of a lease of 10 s.
const MOST_CHANGES: usize = 4;
/// So many that locks are among the slots that move.
const ACCOUNTS: &str = "64";

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("bank::loses_nothing_while_a_cluster_is_rebalanced", rebalance),
        Trial::test("bank::loses_nothing_while_sentinels_replace_the_primary", fail_over),
    ]
}

/// Some of the slots of a primary go to the others, and come back, a few times.
fn rebalance() -> Result<(), Failed> {
    let setup = redis_cluster::Setup { with_replicas: true, ..redis_cluster::Setup::default() };
    let cluster = RedisCluster::start(setup);
    let has_locks = || cluster.primaries().iter().any(|one| one.command(&["DBSIZE"]).int() > 0);
    bank(&cluster.url("", ""), has_locks, |turn| {
        let weight = if turn % 2 == 0 { "0.5" } else { "1" };
        let mut redis_cli = Command::new("redis-cli");
        redis_cli
            .args(["--cluster", "rebalance", &format!("127.0.0.1:{}", cluster.members[0].port)])
            .args(["--cluster-weight", &format!("{}={weight}", cluster.members[1].id)])
            .stdin(Stdio::null());
        let end = Instant::now() + PATIENCE;
        let (done, text) = loop {
            let done = redis_cli.output().expect("`redis-cli` is installed");
            let text = String::from_utf8_lossy(&done.stdout).into_owned();
            // Not all nodes have heard of the last moves. Nothing was moved.
            if !text.contains("Nodes don't agree about configuration") || Instant::now() > end {
                break (done, text);
            }
            thread::sleep(Duration::from_millis(100));
        };
        assert!(done.status.success() && text.contains("Moving "), "{text}");
    })
}

/// Each replica has each lease, so none is lost.
fn fail_over() -> Result<(), Failed> {
    let servers = RefCell::new(Servers::set(redis_sentinel::Setup::default(), 2));
    let url = servers.borrow().url();
    let has_locks = || !servers.borrow().keys().is_empty();
    bank(&url, has_locks, |turn| {
        thread::sleep(CALM);
        servers.borrow_mut().replace(Way::Commanded, turn);
    })
}

/// Runs the bank with its locks at this URL; from the first lock until the bank ends, makes a few changes to their
/// servers.
fn bank(url: &str, has_locks: impl Fn() -> bool, change: impl Fn(usize)) -> Result<(), Failed> {
    let program = env::current_exe()?;
    let folder = program.parent().and_then(|deps| deps.parent()).expect("below the target folder");
    let example = folder.join("examples/bank");
    // `cargo test` builds the examples unless it is told which tests to build, as by `--test overlaps`.
    if !example.exists() {
        return Err("not built: `cargo build --example bank --features bank` builds the example".into());
    }
    let mut bank = Command::new(example)
        .args(["--processes", "4", "--requests", REQUESTS, "--accounts", ACCOUNTS])
        .env("LOCK_URL", url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let end = Instant::now() + PATIENCE;
    while !has_locks() {
        assert!(Instant::now() < end, "the bank takes no lock");
        thread::sleep(Duration::from_millis(10));
    }
    let mut changes = 0;
    while bank.try_wait()?.is_none() {
        if changes < MOST_CHANGES {
            change(changes);
            changes += 1;
        } else {
            thread::sleep(Duration::from_millis(100));
        }
    }
    let shown = bank.wait_with_output()?;
    let text = String::from_utf8_lossy(&shown.stdout) + String::from_utf8_lossy(&shown.stderr);
    println!("{changes} changes: {text}");
    if !shown.status.success() || !text.contains("under the lock none.") {
        return Err(format!("the bank: {text}").into());
    }
    // The last one may have ended after the bank.
    if changes < 2 { Err(format!("only {changes} changes").into()) } else { Ok(()) }
}
