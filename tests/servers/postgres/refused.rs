//! Statements that the server refuses: what fails is the request, and nothing beside it.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use lock_runtime::{LockError, LockErrorKind, LockGuard, LockManager};

use super::{LONG, MS, names::is_ours};
use crate::support::{
    postgres_server::{PostgresServer, QUEUE_IS_FULL},
    stopwatch::{Moment, most_within},
    until,
};

/// A user without any right but those that a test grants.
const TENANT: &str = "tenant";

/// The URL of a client with advisory locks.
fn url(server: &PostgresServer, user: &str, database: &str) -> String {
    format!("postgres+advisory:///{database}?host={}&user={user}", server.folder().display())
}

async fn client(server: &PostgresServer) -> LockManager {
    LockManager::connect(&(url(server, "postgres", "postgres") + "&create_table=true")).await.unwrap()
}

/// A server with the table, and a user who may use it.
async fn with_tenant() -> PostgresServer {
    with_tenant_and(&[]).await
}

async fn with_tenant_and(settings: &[&str]) -> PostgresServer {
    let server = PostgresServer::start(settings);
    client(&server).await.shutdown().await;
    server.query(&format!("CREATE ROLE {TENANT} LOGIN; GRANT ALL ON distributed_locks TO {TENANT}"));
    server
}

/// The number of advisory locks that sessions of the server have, without the marks of the sessions.
fn taken(server: &PostgresServer) -> String {
    server.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1").unwrap()
}

/// From now on, this user's notifications are refused as those of a full queue are.
fn fill_queue(server: &PostgresServer, user: &str) {
    server.query(&format!(
        "CREATE SCHEMA full_queue; GRANT USAGE ON SCHEMA full_queue TO {user}; \
         CREATE FUNCTION full_queue.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS \
         $$ BEGIN {QUEUE_IS_FULL}; END $$; \
         CREATE FUNCTION full_queue.pg_notification_queue_usage() RETURNS float8 LANGUAGE sql AS 'SELECT 0.99::float8'; \
         ALTER ROLE {user} SET search_path = full_queue, pg_catalog, public"
    ));
}

/// Asks for a lock and releases another one while the server refuses something: the release succeeds, and the third
/// lock of the process is kept.
async fn one_request_fails(
    server: &PostgresServer,
    locks: &LockManager,
    refusing: impl AsyncFnOnce(),
) -> LockError {
    let kept = locks.lock("kept").acquire().await.unwrap();
    let other = locks.lock("other").acquire().await.unwrap();
    refusing().await;
    let error = locks.lock("third").try_acquire().await.expect_err("it is refused");
    assert!(kept.is_valid(), "lost by an attempt at another lock");
    other.release().await.expect("nothing of it needs the table");
    assert!(kept.is_valid(), "lost by the release of another lock");
    assert_eq!(taken(server), "1");
    assert!(!server.log().contains("you don't own a lock"), "{}", server.log());
    kept.release().await.unwrap();
    assert_eq!(taken(server), "0");
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_locked_costs_no_session_its_advisory_locks() {
    for change in [
        "LOCK TABLE distributed_locks",
        "ALTER TABLE distributed_locks ADD COLUMN more text",
        "DROP TABLE distributed_locks",
    ] {
        let server = PostgresServer::start(&[]);
        let locks = client(&server).await;
        let mut session = server.session();
        let error = one_request_fails(&server, &locks, async || {
            session.query("BEGIN").unwrap();
            session.query(change).unwrap();
        })
        .await;
        assert!(error.is_retryable(), "{change}: {error}");
        assert_eq!(error.kind(), LockErrorKind::Backend, "{change}: {error}");
        // One that waits gets it when the table is free.
        let lock = locks.lock("third").wait(LONG);
        let waiter = tokio::spawn(async move { lock.acquire().await.unwrap().release().await });
        tokio::time::sleep(500 * MS).await;
        session.query("ROLLBACK").unwrap();
        waiter.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_gone_costs_no_session_its_advisory_locks() {
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    let error = one_request_fails(&server, &locks, async || {
        server.query("DROP TABLE distributed_locks");
    })
    .await;
    assert!(error.to_string().contains("CREATE TABLE"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_was_taken_away_costs_no_session_its_advisory_locks() {
    let server = with_tenant().await;
    let locks = LockManager::connect(&url(&server, TENANT, "postgres")).await.unwrap();
    let error = one_request_fails(&server, &locks, async || {
        server.query(&format!("REVOKE ALL ON distributed_locks FROM {TENANT}"));
    })
    .await;
    assert!(error.to_string().contains("GRANT"), "{error}");
}

/// Like those of a replica; a session of the primary is left to its locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_became_read_only_cost_no_session_its_advisory_locks() {
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    let error = one_request_fails(&server, &locks, async || {
        server.query("ALTER SYSTEM SET default_transaction_read_only = on");
        server.query("SELECT pg_reload_conf()");
        until("it takes no changes", || {
            match server.value("SHOW default_transaction_read_only").as_deref() {
                Some("on") => Ok(()),
                other => Err(other.map(str::to_owned)),
            }
        })
        .await;
    })
    .await;
    assert!(error.to_string().contains("takes no changes"), "{error}");
}

/// A part of a request must not end all locks of the process that it came to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_the_database_does_not_store_is_an_invalid_key_and_no_more() {
    let server = PostgresServer::start(&[]);
    // Only that one may be copied into another encoding.
    server.query("ALTER DATABASE template1 RENAME TO template0");
    server.query("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1'");
    let url = url(&server, "postgres", "latin") + "&create_table=true";
    let locks = LockManager::connect(&url).await.unwrap();
    let kept = locks.lock("kept").acquire().await.unwrap();
    let stored = locks.lock("ä").acquire().await.unwrap();
    // Some share a statement with it.
    let tasks = (0..20).map(|number| {
        let name = if number == 7 { "🔒".to_owned() } else { format!("good {number}") };
        let lock = locks.lock(&name).wait(5000 * MS);
        tokio::spawn(async move { (name, lock.acquire().await.map(drop)) })
    });
    for task in tasks.collect::<Vec<_>>() {
        match task.await.unwrap() {
            (name, Ok(())) => assert_ne!(name, "🔒"),
            (name, Err(error)) => {
                assert_eq!(name, "🔒", "{error}");
                assert_eq!(error.kind(), LockErrorKind::InvalidKey, "{error}");
            }
        }
    }
    let error = locks.lock("🔒").wait(LONG).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::InvalidKey, "{error}");
    assert!(kept.is_valid() && stored.is_valid(), "lost by a name");
    stored.release().await.unwrap();
    kept.release().await.unwrap();
}

/// A waiter of another session, which is notified of releases.
async fn waiter(locks: &LockManager, key: &str) -> tokio::task::JoinHandle<(Moment, LockGuard)> {
    let lock = locks.lock(key).wait(LONG);
    let waiter = tokio::spawn(async move {
        let guard = lock.acquire().await.unwrap();
        (Moment::now(), guard)
    });
    tokio::time::sleep(600 * MS).await;
    assert!(!waiter.is_finished());
    waiter
}

/// Releases locks that are waited for: the releases succeed, the waiters enter, and the other locks are kept.
async fn releases_go_on(server: &PostgresServer, ours: &LockManager, theirs: &LockManager) {
    let kept = ours.lock("kept").acquire().await.unwrap();
    for round in 0..3 {
        let key = format!("waited for {round}");
        let guard = ours.lock(&key).acquire().await.unwrap();
        let waiter = waiter(theirs, &key).await;
        let released = Moment::now();
        guard.release().await.expect("a release needs no notification");
        let (entered, next) = waiter.await.unwrap();
        let took = entered.since(released);
        assert!(took.within(1500 * MS), "only after {took:?}");
        assert!(kept.is_valid(), "lost by a release of another lock");
        next.release().await.unwrap();
    }
    kept.release().await.unwrap();
    assert!(!server.log().contains("you don't own a lock"), "{}", server.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advisory_locks_are_released_without_the_right_to_notify() {
    let server = with_tenant().await;
    let locks = LockManager::connect(&url(&server, TENANT, "postgres")).await.unwrap();
    let theirs = client(&server).await;
    server.query("REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC");
    releases_go_on(&server, &locks, &theirs).await;
    // A new client needs no notification, either.
    let locks = LockManager::connect(&url(&server, TENANT, "postgres")).await.unwrap();
    releases_go_on(&server, &locks, &theirs).await;
    releases_go_on(&server, &theirs, &locks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advisory_locks_are_released_while_the_queue_of_notifications_is_full() {
    let server = with_tenant_and(&["log_statement=all"]).await;
    let theirs = client(&server).await;
    fill_queue(&server, TENANT);
    let listens = || server.log().matches("LISTEN").count();
    let before = listens();
    let locks = LockManager::connect(&url(&server, TENANT, "postgres")).await.unwrap();
    assert_eq!(listens(), before, "a session that begins to listen reads the whole queue");
    releases_go_on(&server, &locks, &theirs).await;
}

/// As providers do with statements that they take for slow ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_that_are_cancelled_cost_no_session_its_advisory_locks() {
    static STORM: AtomicBool = AtomicBool::new(true);
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    let kept = locks.lock("kept").acquire().await.unwrap();
    let mut session = server.session();
    let storm = std::thread::spawn(move || {
        let mut cancelled = 0;
        while STORM.load(Ordering::Relaxed) {
            let cancel = format!(
                "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE {} AND state = 'active'",
                is_ours()
            );
            let rows = session.query(&cancel).unwrap();
            cancelled += rows[0][0].as_deref().unwrap().parse::<u32>().unwrap();
        }
        cancelled
    });
    let began = Instant::now();
    let (mut held, mut refused) = (0, 0);
    while began.elapsed() < Duration::from_secs(3) {
        match locks.lock("other").acquire().await {
            Ok(guard) => {
                held += 1;
                guard.release().await.expect("the lock is free");
            }
            Err(error) => {
                refused += 1;
                assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
            }
        }
        assert!(kept.is_valid(), "lost after {held} releases and {refused} refusals");
    }
    STORM.store(false, Ordering::Relaxed);
    println!("{} cancelled, {held} holds, {refused} refusals", storm.join().unwrap());
    assert!(held > 0 && server.log().contains("canceling statement due to user request"));
    kept.release().await.unwrap();
    assert_eq!(taken(&server), "0");
}

/// Such a client cannot prove that notifications arrive, and asks more often instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_whose_user_may_not_notify_poll() {
    let server = with_tenant().await;
    server.query("REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC");
    let (ours, theirs) =
        (super::client(&server).await, super::url(&server, "").replace("user=postgres", "user=tenant"));
    let theirs = LockManager::connect(&theirs).await.expect("connecting needs no notification");
    let mut took = Vec::new();
    for round in 0..5 {
        let key = format!("k{round}");
        let guard = ours.lock(&key).ttl(LONG).acquire().await.unwrap();
        let waiter = waiter(&theirs, &key).await;
        let released = Moment::now();
        guard.release().await.unwrap();
        let (entered, _next) = waiter.await.unwrap();
        took.push(entered.since(released));
    }
    println!("after {took:?}");
    assert!(most_within(&took, 200 * MS), "{took:?}");
    assert!(!server.log().contains("ERROR:  cannot"), "{}", server.log());
}
