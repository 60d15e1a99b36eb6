//! Locks shared with kazoo and Apache Curator on ZooKeeper.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use lock_runtime::LockManager;

use super::{Contender, LONG, here, installed, java};
use crate::support::{processes, zookeeper_server::ZooKeeperServer};

/// Number of increments by each process.
const TIMES: usize = 100;

fn kazoo() -> Command {
    let mut command = Command::new(installed("LOCK_TEST_KAZOO"));
    command.arg(here("zookeeper/contender.py"));
    command
}

fn curator() -> Command {
    java("LOCK_TEST_CURATOR", "zookeeper/Contender.java")
}

async fn exclude_each_other(mut command: Command) {
    let server = ZooKeeperServer::start("");
    let address = server.address();
    let counter = processes::folder().join(format!("counter-{}", address.port()));
    fs::write(&counter, "0").unwrap();
    command.arg(address.to_string()).arg("/locks/orders/42").arg(&counter);
    let mut theirs = Contender::start(command);
    let locks = LockManager::connect(&format!("zookeeper://{address}/locks/orders")).await.unwrap();
    let lock = locks.with_prefix("").unwrap().lock("42").wait(LONG);
    for _ in 0..3 {
        // They hold it.
        theirs.ask("acquire", "held");
        assert!(lock.try_acquire().await.unwrap().is_none(), "both hold it");
        let waiting = lock.clone();
        let waiter = tokio::spawn(async move { waiting.acquire().await.unwrap() });
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!waiter.is_finished(), "both hold it");
        theirs.ask("release", "released");
        let released = Instant::now();
        let guard = waiter.await.unwrap();
        assert!(released.elapsed() < Duration::from_secs(2), "only after {:?}", released.elapsed());
        // We hold it.
        theirs.ask("try", "busy");
        theirs.tell("acquire");
        assert!(theirs.answers.recv_timeout(Duration::from_millis(200)).is_err(), "both hold it");
        guard.release().await.unwrap();
        theirs.says("held");
        theirs.ask("release", "released");
    }
    // Both at once, in the same place.
    theirs.tell(&format!("count {TIMES}"));
    for _ in 0..TIMES {
        let guard = lock.acquire().await.unwrap();
        let value: usize = fs::read_to_string(&counter).unwrap().trim().parse().unwrap();
        fs::write(&counter, (value + 1).to_string()).unwrap();
        guard.release().await.unwrap();
    }
    theirs.says("counted");
    assert_eq!(fs::read_to_string(&counter).unwrap().trim(), (2 * TIMES).to_string(), "updates were lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs what `tests/run interop` installs"]
async fn a_lock_of_kazoo_and_ours_exclude_each_other() {
    exclude_each_other(kazoo()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs what `tests/run interop` installs"]
async fn a_mutex_of_curator_and_ours_exclude_each_other() {
    exclude_each_other(curator()).await;
}
