//! Behind a pooler. The conformance suite runs behind one in transaction mode; here is what it does not see.

use std::time::Instant;

use lock_runtime::LockManager;

use super::{LONG, MS};
use crate::support::{
    pgbouncer::PgBouncer, postgres_protocol::Session, postgres_server::PostgresServer, until,
};

async fn client(bouncer: &PgBouncer) -> LockManager {
    let url =
        format!("postgres:///postgres?host={}&user=postgres&create_table=true", bouncer.folder().display());
    LockManager::connect(&url).await.unwrap()
}

/// Time until each of ten waiters in turn, in another client, has the lock after its release.
async fn woken_after(bouncer: &PgBouncer) -> Vec<std::time::Duration> {
    let (ours, theirs) = (client(bouncer).await, client(bouncer).await);
    // Until it is known whether notifications arrive.
    tokio::time::sleep(1000 * MS).await;
    let mut woken = Vec::new();
    for _ in 0..10 {
        let guard = ours.lock("k").ttl(LONG).acquire().await.unwrap();
        let lock = theirs.lock("k").wait(LONG);
        let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
        tokio::time::sleep(400 * MS).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        waiter.await.unwrap().release().await.unwrap();
        woken.push(released.elapsed());
    }
    woken.sort();
    woken
}

/// What the sessions of the server listen to that the pooler lends.
fn listening(server: &PostgresServer, bouncer: &PgBouncer) -> Vec<String> {
    let count = "SELECT count(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'";
    let count: usize = server.value(count).unwrap().parse().unwrap();
    // Each gets another one, as long as their transactions are open.
    let mut sessions: Vec<_> = (0..count).map(|_| Session::connect(&bouncer.socket()).unwrap()).collect();
    let all = sessions.iter_mut().flat_map(|session| {
        session.query("BEGIN").unwrap();
        session.query("SELECT pg_listening_channels()").unwrap()
    });
    all.flatten().flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_client_listens_in_a_session_of_others() {
    let server = PostgresServer::start(&[]);
    let bouncer = PgBouncer::start(&server, "transaction");
    let clients = [client(&bouncer).await, client(&bouncer).await, client(&bouncer).await];
    // A client that locks so often wants to be notified.
    for _ in 0..100 {
        for locks in &clients {
            locks.lock("k").wait(LONG).acquire().await.unwrap().release().await.unwrap();
        }
        tokio::time::sleep(5 * MS).await;
    }
    assert_eq!(listening(&server, &bouncer), [""; 0]);
    // Waiters poll, without a statement that is prepared.
    let woken = woken_after(&bouncer).await;
    println!("in transaction mode: {woken:?}");
    assert!(woken[5] < 300 * MS, "{woken:?}");
    assert_eq!(server.value("SELECT count(*) FROM pg_prepared_statements").as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_of_sessions_is_used_like_the_server_or_polled() {
    let server = PostgresServer::start(&[]);
    let bouncer = PgBouncer::start(&server, "session");
    let woken = woken_after(&bouncer).await;
    println!("in session mode: {woken:?}");
    assert!(woken[5] < 150 * MS, "{woken:?}");
    // A session that ended while it was idle.
    let locks = client(&bouncer).await;
    for _ in 0..3 {
        let guard = locks.lock("k").ttl(LONG).wait(LONG).acquire().await.unwrap();
        server.terminate_clients();
        until("the sessions are gone", || {
            match server
                .value("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
                .as_deref()
            {
                Some("1") => Ok(()),
                other => Err(other.map(str::to_owned)),
            }
        })
        .await;
        guard.release().await.unwrap();
    }
}
