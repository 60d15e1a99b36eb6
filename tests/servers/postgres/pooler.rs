//! Behind a pooler. The conformance suite runs behind one in transaction mode; here is what it does not see.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use lock_runtime::{LockErrorKind, LockManager};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UnixStream},
};

use super::{LONG, MS};
use crate::support::{
    pgbouncer::PgBouncer,
    postgres_protocol::Session,
    postgres_server::PostgresServer,
    stopwatch::{Moment, Took, most_within},
    until,
};

/// What follows the number of a statement in its text.
const ECHO: &[u8] = b")::bigint::bigint AS echo";

async fn client(bouncer: &PgBouncer) -> LockManager {
    let url =
        format!("postgres:///postgres?host={}&user=postgres&create_table=true", bouncer.folder().display());
    LockManager::connect(&url).await.unwrap()
}

/// Time until each of ten waiters in turn, in another client, has the lock after its release.
async fn woken_after(bouncer: &PgBouncer) -> Vec<Took> {
    let (ours, theirs) = (client(bouncer).await, client(bouncer).await);
    // Until it is known whether notifications arrive.
    tokio::time::sleep(1000 * MS).await;
    let mut woken = Vec::new();
    for _ in 0..10 {
        let guard = ours.lock("k").ttl(LONG).acquire().await.unwrap();
        let lock = theirs.lock("k").wait(LONG);
        let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
        tokio::time::sleep(400 * MS).await;
        let released = Moment::now();
        guard.release().await.unwrap();
        waiter.await.unwrap().release().await.unwrap();
        woken.push(released.took());
    }
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
    assert!(most_within(&woken, 300 * MS), "{woken:?}");
    assert_eq!(server.value("SELECT count(*) FROM pg_prepared_statements").as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_of_sessions_is_used_like_the_server_or_polled() {
    let server = PostgresServer::start(&[]);
    let bouncer = PgBouncer::start(&server, "session");
    let woken = woken_after(&bouncer).await;
    println!("in session mode: {woken:?}");
    assert!(most_within(&woken, 150 * MS), "{woken:?}");
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

/// Passes connections on to a server; once it is confused, it asks each statement for the number of another one.
async fn confusable(server: &PostgresServer) -> (SocketAddr, Arc<AtomicBool>) {
    let (socket, confused) = (server.socket(), Arc::new(AtomicBool::new(false)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let is_confused = Arc::clone(&confused);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let upstream = UnixStream::connect(&socket).await.unwrap();
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                (client.into_split(), upstream.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            let is_confused = Arc::clone(&is_confused);
            tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
                    let sent = &mut buffer[..count];
                    let number = sent.windows(ECHO.len()).position(|part| part == ECHO);
                    if let Some(end) = number.filter(|_| is_confused.load(Ordering::SeqCst)) {
                        let digit = &mut sent[end - 1];
                        *digit = if *digit == b'9' { b'0' } else { *digit + 1 };
                    }
                    if to_server.write_all(sent).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, confused)
}

/// As of a driver or a pooler that has lost count.
#[tokio::test]
async fn the_answer_to_another_statement_grants_nothing() {
    let server = PostgresServer::start(&[]);
    let (address, confused) = confusable(&server).await;
    let url = format!("postgres://postgres@{address}/postgres?sslmode=disable&create_table=true");
    let locks = LockManager::connect(&url).await.unwrap();
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    confused.store(true, Ordering::SeqCst);
    let error = locks.lock("k").try_acquire().await.expect_err("it is another statement's");
    assert_eq!(error.kind(), LockErrorKind::Backend);
    assert!(error.to_string().contains("gave an answer that is not understood"), "{error}");
}
