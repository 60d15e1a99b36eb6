//! A primary that fails, and a replica that takes its place.

use std::time::{Duration, Instant};

use lock_runtime::{LockErrorKind, LockManager};

use super::{LONG, MS, client, url};
use crate::support::{
    postgres_server::PostgresServer,
    proxy::{Proxy, Upstream},
    until,
};

const TTL: Duration = Duration::from_secs(5);

/// A primary with the table of the locks, and a replica that has whatever was committed.
async fn pair() -> (PostgresServer, PostgresServer) {
    let primary = PostgresServer::start(&["wal_level=replica", "max_wal_senders=4"]);
    client(&primary).await.shutdown().await;
    let replica = primary.start_replica();
    primary.query("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.query("ALTER SYSTEM SET synchronous_commit = remote_apply");
    primary.query("SELECT pg_reload_conf()");
    until("it is synchronous", || {
        match primary.value("SELECT sync_state FROM pg_stat_replication").as_deref() {
            Some("sync") => Ok(()),
            other => Err(other.map(str::to_owned)),
        }
    })
    .await;
    (primary, replica)
}

fn through(proxy: &Proxy) -> String {
    format!("postgres://postgres@{}/postgres?sslmode=disable", proxy.address())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_are_held_and_waited_for_while_a_replica_takes_the_place_of_its_primary() {
    let (mut primary, replica) = pair().await;
    let proxy = Proxy::start(Upstream::Unix(primary.socket()));
    let connect = async || LockManager::connect(&through(&proxy)).await.unwrap();
    let (ours, theirs) = (connect().await, connect().await);
    let guard = ours.lock("held").ttl(TTL).acquire().await.unwrap();
    let lock = theirs.lock("held").ttl(TTL).wait(LONG * 2);
    let waiter = tokio::spawn(async move { (lock.acquire().await, Instant::now()) });
    tokio::time::sleep(100 * MS).await;

    primary.kill();
    proxy.lead_to(Upstream::Unix(replica.socket()));
    // The name of the primary leads to the replica, which takes no changes yet.
    let error = theirs.lock("other").wait(Duration::from_secs(1)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend);
    assert!(error.is_retryable() && error.to_string().contains("primary"), "{error}");
    let lock = theirs.lock("other").wait(LONG);
    let other = tokio::spawn(async move { lock.acquire().await });
    replica.query("SELECT pg_promote()");

    other.await.unwrap().unwrap().release().await.unwrap();
    tokio::time::sleep(TTL * 3 / 2).await;
    assert!(guard.is_valid() && !waiter.is_finished(), "it is renewed on the new primary");
    let token = guard.fencing_token();
    let released = Instant::now();
    guard.release().await.unwrap();
    let (next, at) = waiter.await.unwrap();
    assert!(at - released < Duration::from_secs(2), "{:?}", at - released);
    let next = next.unwrap();
    assert!(next.fencing_token() > token);
    next.release().await.unwrap();
}

/// It is cut off from its replica, which may have been promoted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_lost_its_synchronous_replica_grants_and_renews_nothing() {
    let (primary, mut replica) = pair().await;
    let locks = LockManager::connect(&url(&primary, "")).await.unwrap();
    let before = Instant::now();
    let guard = locks.lock("held").ttl(TTL).acquire().await.unwrap();
    replica.kill();
    let error = locks.lock("other").wait(MS).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    guard.lost().await;
    // Up to one renewal was answered before.
    assert!(before.elapsed() < TTL * 3 / 2, "{:?}", before.elapsed());
    drop((guard, locks));
}
