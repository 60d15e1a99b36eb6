//! Calls that the server refuses: what fails is the request, and no other hold of the session.

use std::time::Duration;

use lock_runtime::LockErrorKind;

use super::{LONG, admin, connect};
use crate::support::{
    until,
    zookeeper_protocol::{self as zk, Client},
    zookeeper_server::{SESSION, ZooKeeperServer},
};

/// All permissions, and the one to read.
const ALL: i32 = 31;
const READ: i32 = 1;
/// The quota of the lock `third`.
const QUOTA: &str = "/zookeeper/quota/lock:third";

/// What the server refuses about the locks `third` and `other`.
struct Refusal {
    claim: &'static str,
    begin: fn(&mut Client),
    end: fn(&mut Client),
    /// A word of the error of an attempt at `third`.
    word: &'static str,
    /// Whether `other` cannot be released.
    forbids_release: bool,
}

const REFUSALS: &[Refusal] = &[
    Refusal {
        claim: "an_acl_costs_no_session_its_other_holds",
        begin: |admin| {
            admin.create_for(READ, "/lock:third", b"", zk::PERSISTENT).unwrap().unwrap();
        },
        end: |admin| admin.delete("/lock:third").unwrap().unwrap(),
        word: "ACL",
        forbids_release: false,
    },
    Refusal {
        claim: "an_acl_that_forbids_a_release_costs_no_session_its_other_holds",
        begin: |admin| {
            admin.create_for(READ, "/lock:third", b"", zk::PERSISTENT).unwrap().unwrap();
            // To give rights back needs the right to do so.
            admin.set_rights("/lock:other", READ | zk::ADMIN).unwrap().unwrap();
        },
        end: |admin| {
            admin.delete("/lock:third").unwrap().unwrap();
            admin.set_rights("/lock:other", ALL).unwrap().unwrap();
        },
        word: "ACL",
        forbids_release: true,
    },
    Refusal {
        // The node above all locks, which each heartbeat checks.
        claim: "a_root_that_must_not_be_read_costs_no_session_its_holds",
        begin: |admin| admin.set_rights("/", zk::ADMIN).unwrap().unwrap(),
        end: |admin| admin.set_rights("/", ALL).unwrap().unwrap(),
        word: "ACL",
        forbids_release: false,
    },
    Refusal {
        claim: "a_quota_costs_no_session_its_other_holds",
        begin: |admin| {
            admin.create("/lock:third", b"", zk::PERSISTENT).unwrap().unwrap();
            for (node, content) in [
                ("", ""),
                ("/zookeeper_stats", "count=1,bytes=0"),
                ("/zookeeper_limits", "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=1"),
            ] {
                let path = format!("{QUOTA}{node}");
                admin.create(&path, content.as_bytes(), zk::PERSISTENT).unwrap().unwrap();
            }
        },
        end: |admin| {
            for node in ["/zookeeper_limits", "/zookeeper_stats", ""] {
                admin.delete(&format!("{QUOTA}{node}")).unwrap().unwrap();
            }
        },
        word: "quota",
        forbids_release: false,
    },
];

/// Asks for a lock, and releases another one, while the server refuses something about them: a third lock of the session is
/// kept, and both can be used again afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_refuses_costs_no_session_its_other_holds() {
    let server = ZooKeeperServer::start("enforceQuota=true\n");
    for Refusal { claim, begin, end, word, forbids_release } in REFUSALS {
        let locks = connect(&server).await;
        let kept = locks.lock("kept").acquire().await.unwrap();
        let other = locks.lock("other").acquire().await.unwrap();
        let mut admin = admin(&server);
        until("the node of the case before is gone", || match admin.children("/lock:third").unwrap() {
            Err(zk::NO_NODE) => Ok(()),
            left => Err(left),
        })
        .await;
        begin(&mut admin);
        let error = locks.lock("third").try_acquire().await.expect_err(claim);
        assert_eq!(error.kind(), LockErrorKind::Backend, "{claim}: {error}");
        assert!(error.to_string().contains(word), "{claim}: {error}");
        match other.release().await {
            Ok(()) => assert!(!forbids_release, "{claim}"),
            Err(refused) => {
                assert!(*forbids_release, "{claim}: {refused}");
                assert_eq!(refused.kind(), LockErrorKind::Backend, "{claim}: {refused}");
            }
        }
        // Longer than a session without answers lasts.
        tokio::time::sleep(SESSION * 3 / 2).await;
        assert!(kept.is_valid(), "{claim}: lost by a request for another lock: {error}");
        end(&mut admin);
        // A node that could not be deleted is deleted then.
        for name in ["other", "third"] {
            let acquired = locks.lock(name).wait(LONG).acquire().await;
            let guard = acquired.unwrap_or_else(|error| panic!("{claim}: {name} is allowed again: {error}"));
            guard.release().await.unwrap();
        }
        assert!(kept.is_valid(), "{claim}");
        kept.release().await.unwrap();
    }
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
