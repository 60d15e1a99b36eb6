//! Operators: what they see of locks that are shared with Redisson, and how they free a lock.

use lock_runtime::{FencingToken, LockErrorKind, LockManager};

use super::{LONG, MS, client, holds};
use crate::support::{java::Java, redis_server::RedisServer, until};

async fn found(locks: &LockManager, names: &str) -> Vec<String> {
    let (mut found, mut scan) = (Vec::new(), locks.scan(names));
    while let Some(lock) = scan.next().await {
        found.push(lock.unwrap().key.as_str().to_owned());
    }
    found.sort_unstable();
    found
}

#[tokio::test]
async fn java_s_holder_is_shown_and_freed_by_force_alone() {
    let server = RedisServer::start(&[]);
    let (locks, java) = (client(&server, "").await, Java::new(&server));
    let owner = Java::owner(1);
    java.acquire("x", LONG, &owner).unwrap();
    let state = locks.inspect("x").await.unwrap();
    let holder = &state.holders[0];
    assert!(holder.is_foreign() && holder.token().is_none() && holder.client().is_none(), "{state:?}");
    assert!(holder.remaining().is_some_and(|left| left <= LONG && left > LONG / 2), "{state:?}");
    let lock = locks.lock("x").ttl(LONG).wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until("it is shown that a client waits", || {
        match server.command(&["PUBSUB", "NUMSUB", &Java::channel("x")]) {
            of if format!("{of:?}").contains("Int(1)") => Ok(()),
            of => Err(of),
        }
    })
    .await;
    assert_eq!(locks.inspect("x").await.unwrap().waiters.len(), 1);
    let error = locks.revoke("x", FencingToken::from_micros(1)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unsupported);
    assert!(error.to_string().contains("revoke_by_force"), "{error}");
    assert!(locks.revoke_by_force("x", None).await.unwrap());
    let guard = waiter.await.unwrap();
    assert_eq!(java.release("x", &owner), None, "Java's unlock says that it is not the holder");
    assert!(!locks.revoke_by_force("x", None).await.unwrap(), "ours has a token");
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

/// What this library records beside the owner changes nothing for Java, who sees one owner with one hold.
#[tokio::test]
async fn the_record_of_a_grant_goes_with_the_lock() {
    let server = RedisServer::start(&[]);
    let (locks, java) = (client(&server, "").await, Java::new(&server));
    let guard = locks.lock("x").ttl(LONG).label("job").acquire().await.unwrap();
    let shown = locks.inspect("x").await.unwrap();
    assert_eq!(shown.holders[0].label(), Some("job"));
    assert_eq!(holds(&server, "x").len(), 1);
    java.acquire("x", LONG, &Java::owner(1)).unwrap_err();
    guard.release().await.unwrap();
    assert_eq!(server.command(&["EXISTS", "x"]).int(), 0);
    java.acquire("x", LONG, &Java::owner(1)).unwrap();
    assert!(locks.inspect("x").await.unwrap().holders[0].is_foreign());
    assert_eq!(java.release("x", &Java::owner(1)), Some(true));
}

#[tokio::test]
async fn a_scan_leaves_out_what_is_no_lock_and_what_may_not_be_read() {
    let server = RedisServer::start(&[]);
    let (locks, java) = (client(&server, "").await, Java::new(&server));
    let guard = locks.lock("app:lock").ttl(LONG).acquire().await.unwrap();
    java.acquire("app:java", LONG, &Java::owner(1)).unwrap();
    server.command(&["HSET", "app:session", "user", "42"]);
    server.command(&["HSET", "app:pair", "user", "42", "name", "x"]);
    server.command(&["HSET", "app:large", "a", "1", "b", "2", "c", "3"]);
    server.command(&["SET", "app:text", "x"]);
    assert_eq!(found(&locks, "").await, ["app:java", "app:lock"]);
    assert_eq!(found(&locks, "app:l").await, ["app:lock"]);
    assert_eq!(locks.inspect("app:large").await.unwrap_err().kind(), LockErrorKind::InvalidKey);
    let user = "ACL SETUSER narrow on >password ~app:lock ~{app:lock}:* -@all +@connection +info +eval +evalsha \
                +script|load +hlen +hgetall +pttl +time +scan";
    server.command(&user.split(' ').collect::<Vec<_>>());
    let narrow = client(&server, "?user=narrow&pass=password").await;
    assert_eq!(found(&narrow, "").await, ["app:lock"]);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn each_right_of_an_operator_that_is_missing_is_named() {
    let page = include_str!("../../../lock-runtime/src/backend/stores/redisson/docs.md");
    let (_, rest) = page.split_once("ACL SETUSER ").expect("the page has the user");
    let user = rest.split_once("```").expect("it ends with the block").0;
    for (missing, is_scan) in [("+hlen", false), ("+hgetall", false), ("+scan", true)] {
        assert!(page.contains(missing), "{missing}");
        let operator = ["+hlen", "+hgetall", "+scan"].into_iter().filter(|right| *right != missing);
        let rules = user.split_whitespace().chain(operator);
        let server = RedisServer::start(&["--user"].into_iter().chain(rules).collect::<Vec<_>>());
        let locks = client(&server, "?user=locks&pass=password").await;
        let guard = locks.lock("user:42").ttl(LONG).acquire().await.unwrap();
        let result = if is_scan {
            locks.scan("user:").next().await.expect("an answer").map(drop)
        } else {
            locks.inspect("user:42").await.map(drop)
        };
        let error = result.expect_err(missing);
        let text = error.to_string();
        assert!(!error.is_retryable() && text.contains("ACL"), "{missing}: {text}");
        guard.release().await.unwrap();
    }
}

/// A holder of ours in another process is notified of the force, although no renewal is due.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_was_freed_by_force_learns_of_it_with_the_rights_of_the_page() {
    let page = include_str!("../../../lock-runtime/src/backend/stores/redisson/docs.md");
    let (_, rest) = page.split_once("ACL SETUSER ").expect("the page has the user");
    let user = rest.split_once("```").expect("it ends with the block").0.split_whitespace();
    let rules = ["--user"].into_iter().chain(user).chain(["+hlen", "+hgetall"]);
    let server = RedisServer::start(&rules.collect::<Vec<_>>());
    let rest = "?user=locks&pass=password";
    let (ours, operator) = (client(&server, rest).await, client(&server, rest).await);
    let guard = ours.lock("user:42").ttl(LONG).acquire().await.unwrap();
    assert!(operator.revoke_by_force("user:42", guard.fencing_token()).await.unwrap());
    let began = std::time::Instant::now();
    tokio::time::timeout(LONG, guard.lost()).await.expect("it is told");
    assert!(began.elapsed() < 2_000 * MS, "{:?}", began.elapsed());
}
