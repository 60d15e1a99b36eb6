//! Calls that the server refuses: what fails is the request, and no other hold of the session.

use std::time::Duration;

use lock_runtime::{LockError, LockErrorKind, LockManager};

use super::{LONG, admin, connect};
use crate::support::{
    until,
    zookeeper_protocol::{self as zk, Client},
    zookeeper_server::{SESSION, ZooKeeperServer},
};

/// All permissions, and the one to read.
const ALL: i32 = 31;
const READ: i32 = 1;

/// Asks for a lock, and releases another one, while the server refuses something about them.
async fn third_lock_is_kept(
    locks: &LockManager,
    server: &ZooKeeperServer,
    refuse: impl FnOnce(&mut Client),
    allow: impl FnOnce(&mut Client),
) -> (LockError, Result<(), LockError>) {
    let kept = locks.lock("kept").acquire().await.unwrap();
    let other = locks.lock("other").acquire().await.unwrap();
    let mut admin = admin(server);
    refuse(&mut admin);
    let error = locks.lock("third").try_acquire().await.expect_err("it is refused");
    let released = other.release().await;
    // Longer than a session without answers lasts.
    tokio::time::sleep(SESSION * 3 / 2).await;
    assert!(kept.is_valid(), "lost by a request for another lock: {error}");
    allow(&mut admin);
    // A node that could not be deleted is deleted then.
    let lock = locks.lock("other").wait(LONG);
    lock.acquire().await.expect("free again").release().await.unwrap();
    locks.lock("third").wait(LONG).acquire().await.expect("allowed again").release().await.unwrap();
    assert!(kept.is_valid());
    kept.release().await.unwrap();
    (error, released)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acl_costs_no_session_its_other_holds() {
    let server = ZooKeeperServer::start("");
    let locks = connect(&server).await;
    let (error, released) = third_lock_is_kept(
        &locks,
        &server,
        |admin| {
            admin.create_for(READ, "/lock:third", b"", zk::PERSISTENT).unwrap().unwrap();
        },
        |admin| admin.delete("/lock:third").unwrap().unwrap(),
    )
    .await;
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    assert!(error.to_string().contains("ACL"), "{error}");
    released.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acl_that_forbids_a_release_costs_no_session_its_other_holds() {
    let server = ZooKeeperServer::start("");
    let locks = connect(&server).await;
    let (error, released) = third_lock_is_kept(
        &locks,
        &server,
        |admin| {
            admin.create_for(READ, "/lock:third", b"", zk::PERSISTENT).unwrap().unwrap();
            // To give rights back needs the right to do so.
            admin.set_rights("/lock:other", READ | zk::ADMIN).unwrap().unwrap();
        },
        |admin| {
            admin.delete("/lock:third").unwrap().unwrap();
            admin.set_rights("/lock:other", ALL).unwrap().unwrap();
        },
    )
    .await;
    assert!(error.to_string().contains("ACL"), "{error}");
    let refused = released.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Backend, "{refused}");
}

/// The node above all locks, which each heartbeat checks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_root_that_must_not_be_read_costs_no_session_its_holds() {
    let server = ZooKeeperServer::start("");
    let locks = connect(&server).await;
    let (error, released) = third_lock_is_kept(
        &locks,
        &server,
        |admin| admin.set_rights("/", zk::ADMIN).unwrap().unwrap(),
        |admin| admin.set_rights("/", ALL).unwrap().unwrap(),
    )
    .await;
    assert!(error.to_string().contains("ACL"), "{error}");
    released.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_costs_no_session_its_other_holds() {
    let server = ZooKeeperServer::start("enforceQuota=true\n");
    let locks = connect(&server).await;
    let limit = b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=1";
    let (error, released) = third_lock_is_kept(
        &locks,
        &server,
        |admin| {
            admin.create("/lock:third", b"", zk::PERSISTENT).unwrap().unwrap();
            admin.create("/zookeeper/quota/lock:third", b"", zk::PERSISTENT).unwrap().unwrap();
            let path = "/zookeeper/quota/lock:third/zookeeper_stats";
            admin.create(path, b"count=1,bytes=0", zk::PERSISTENT).unwrap().unwrap();
            let path = "/zookeeper/quota/lock:third/zookeeper_limits";
            admin.create(path, limit, zk::PERSISTENT).unwrap().unwrap();
        },
        |admin| {
            for node in ["/zookeeper_limits", "/zookeeper_stats", ""] {
                admin.delete(&format!("/zookeeper/quota/lock:third{node}")).unwrap().unwrap();
            }
        },
    )
    .await;
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    assert!(error.to_string().contains("quota"), "{error}");
    released.unwrap();
}

/// Each name that this library accepts is one for the server, and a name beyond its limit fails alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_cost_no_session_its_other_holds() {
    let server = ZooKeeperServer::start("");
    let locks = connect(&server).await;
    let kept = locks.lock("kept").acquire().await.unwrap();
    let long = "x".repeat(2000);
    for name in ["🔒", "\u{e000}", "\u{fffd}", "a/b", "..", "zookeeper", "%2F", "\u{f8ff}\u{ffff}", &long] {
        match locks.lock(name).try_acquire().await {
            Ok(guard) => guard.expect("free").release().await.unwrap(),
            Err(error) => assert_eq!(error.kind(), LockErrorKind::InvalidKey, "{name:?}: {error}"),
        }
    }
    // A node of that name which can have no children.
    let mut admin = admin(&server);
    admin.create("/lock:ephemeral", b"", zk::EPHEMERAL).unwrap().unwrap();
    let error = locks.lock("ephemeral").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::InvalidKey, "{error}");
    tokio::time::sleep(SESSION + Duration::from_secs(1)).await;
    assert!(kept.is_valid(), "lost by a name");
    kept.release().await.unwrap();
    until("its node is gone", || match admin.children("/lock:kept").unwrap() {
        Ok(children) if !children.is_empty() => Err(children),
        _ => Ok(()),
    })
    .await;
}
