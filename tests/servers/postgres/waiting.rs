//! Waiting for a lock: who is notified, and what is too late.

use std::time::Instant;

use lock_runtime::LockManager;

use super::{LONG, MS, client, url};
use crate::support::{
    postgres_server::PostgresServer,
    proxy::{Flow, Proxy, Upstream, Way},
    stopwatch::{Moment, most_within},
    until,
};

/// Each manager has its own listener, as if it were in a process of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_a_waiter_of_another_process() {
    let server = PostgresServer::start(&[]);
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let mut woken = Vec::new();
    for _ in 0..15 {
        let guard = ours.lock("k").ttl(LONG).acquire().await.unwrap();
        let lock = theirs.lock("k").wait(LONG);
        let waiter = tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            (Moment::now(), guard)
        });
        until("the waiter is known", || {
            let wanted = "SELECT wanted_until > clock_timestamp() FROM distributed_locks WHERE name = 'k'";
            match server.value(wanted).as_deref() {
                Some("t") => Ok(()),
                other => Err(other.map(str::to_owned)),
            }
        })
        .await;
        tokio::time::sleep(30 * MS).await;
        let released = Moment::now();
        guard.release().await.unwrap();
        let (entered, guard) = waiter.await.unwrap();
        woken.push(entered.since(released));
        guard.release().await.unwrap();
        // So that the next waiter has to ask for itself.
        server.query("UPDATE distributed_locks SET wanted_until = '-infinity'");
    }
    println!("woken after {woken:?}");
    assert!(most_within(&woken, 50 * MS), "{woken:?}");
}

/// A holder without waiters sends no notification: it is a write that all servers' commits wait for.
#[tokio::test]
async fn a_release_without_waiters_is_no_notification() {
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    let mut listener = sqlx::postgres::PgListener::connect_with(&super::pool(&server)).await.unwrap();
    let channel = "lock_40a8c6f599537c14";
    listener.listen(channel).await.unwrap();
    for _ in 0..20 {
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    }
    // A client waits.
    let guard = locks.lock("k").ttl(LONG).acquire().await.unwrap();
    server.query("UPDATE distributed_locks SET wanted_until = now() + interval '1 min'");
    guard.release().await.unwrap();
    assert_eq!(
        listener.recv().await.unwrap().payload(),
        "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a"
    );
    server.query("UPDATE distributed_locks SET wanted_until = now() - interval '1 min'");
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    server.query(&format!("NOTIFY \"{channel}\", 'the end'"));
    assert_eq!(listener.recv().await.unwrap().payload(), "the end");
}

#[tokio::test]
async fn a_request_that_is_executed_late_grants_nothing() {
    let server = PostgresServer::start(&[]);
    client(&server).await.shutdown().await;
    let proxy = Proxy::start(Upstream::Unix(server.socket()));
    let late = LockManager::connect(&format!(
        "postgres://postgres@{}/postgres?response_timeout=300ms",
        proxy.address()
    ))
    .await
    .unwrap();
    // The statement that is sent first changes a row that is there.
    late.lock("k").acquire().await.unwrap().release().await.unwrap();
    let granted = || server.value("SELECT version FROM distributed_locks WHERE name = 'k'");
    let before = granted();
    proxy.set(Way::ToServer, Flow::Hold);
    late.lock("k").ttl(LONG).try_acquire().await.unwrap_err();
    // The client is gone, and cannot release what it is granted now.
    std::mem::drop(late);
    tokio::time::sleep(600 * MS).await;
    proxy.set(Way::ToClient, Flow::Hold);
    proxy.set(Way::ToServer, Flow::Pass);
    tokio::time::sleep(300 * MS).await;
    assert!(before.is_some());
    assert_eq!(granted(), before, "it was granted late");
    let next = LockManager::connect(&url(&server, "")).await.unwrap();
    next.lock("k").try_acquire().await.unwrap().expect("free").release().await.unwrap();
    proxy.heal();
}

/// Ends the sessions that the clients' connections have, so that their next statements are sent twice.
async fn end_sessions(server: &PostgresServer) {
    server.terminate_clients();
    let count = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'";
    until("the sessions have ended", || match server.value(count).as_deref() {
        Some("1") => Ok(()),
        other => Err(other.map(str::to_owned)),
    })
    .await;
}

/// Executes what the first of two statements would, if it came late: a grant to the same owner.
fn grant_late(server: &PostgresServer, owner: &str) {
    let granted = server.query(&format!(
        "UPDATE distributed_locks SET owner = '{owner}', version = version + 1, expires_at = clock_timestamp() + interval \
         '20 s' WHERE name = 'k' AND owner IS NULL RETURNING name"
    ));
    assert_eq!(granted.len(), 1, "the lock is free");
}

async fn is_soon_free(server: &PostgresServer) {
    let began = Instant::now();
    until("the late grant is released", || {
        match server.value("SELECT owner FROM distributed_locks WHERE name = 'k'") {
            None => Ok(()),
            owner => Err(owner),
        }
    })
    .await;
    assert!(began.elapsed() < 3000 * MS, "only after {:?}", began.elapsed());
}

#[tokio::test]
async fn a_grant_that_comes_twice_because_it_was_sent_twice_is_released() {
    for (before, released) in [
        ("", true),
        ("UPDATE distributed_locks SET expires_at = clock_timestamp() WHERE name = 'k'", false),
        ("UPDATE distributed_locks SET owner = NULL WHERE name = 'k'", false),
    ] {
        let server = PostgresServer::start(&[]);
        let locks = client(&server).await.ttl(LONG);
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
        end_sessions(&server).await;
        let guard = locks.lock("k").acquire().await.unwrap();
        let owner = server.value("SELECT owner FROM distributed_locks WHERE name = 'k'").unwrap();
        server.query(before);
        assert_eq!(guard.release().await.is_ok(), released, "after {before:?}");
        grant_late(&server, &owner);
        is_soon_free(&server).await;
    }
}

#[tokio::test]
async fn a_grant_that_comes_after_the_same_request_was_refused_is_released() {
    let server = PostgresServer::start(&[]);
    let (ours, theirs) = (client(&server).await.ttl(LONG), client(&server).await.ttl(LONG));
    ours.lock("k").acquire().await.unwrap().release().await.unwrap();
    let guard = theirs.lock("k").acquire().await.unwrap();
    end_sessions(&server).await;
    assert!(ours.lock("k").try_acquire().await.unwrap().is_none());
    // The statement is not prepared yet, so its session shows its owner.
    let owner = server
        .value(
            "SELECT substring(query FROM '''([0-9a-f]{32})''::uuid') FROM pg_stat_activity \
             WHERE query LIKE '/* lock-runtime */%UPDATE%f.owner%' OR query LIKE '/* lock-runtime */%WITH moment%' LIMIT 1",
        )
        .unwrap();
    assert_eq!(owner.len(), 32, "{owner}");
    guard.release().await.unwrap();
    grant_late(&server, &owner);
    is_soon_free(&server).await;
}

/// A request is void a moment after it was sent, so what it may have been granted ends a `ttl` later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_without_a_server_takes_as_long_as_a_ttl_and_a_request() {
    for is_dropped in [false, true] {
        let mut server = PostgresServer::start(&[]);
        let locks = client(&server).await.ttl(2000 * MS);
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
        server.pause();
        let lock = locks.lock("k").wait(LONG);
        if is_dropped {
            let attempt = tokio::spawn(async move { lock.acquire().await.map(drop) });
            tokio::time::sleep(100 * MS).await;
            attempt.abort();
        } else {
            lock.try_acquire().await.unwrap_err();
        }
        let began = Instant::now();
        locks.shutdown().await;
        let took = began.elapsed();
        println!("{took:?}");
        // And what was sent to release it has to be given up.
        assert!(took < 6000 * MS, "{took:?}");
        server.bring_back();
    }
}
