//! What a statement without an answer leaves on the server: its place is taken until the server has ended it, so there are
//! never more connections than the page says.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use lock_runtime::{LockErrorKind, LockManager, backend::Postgres};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{LONG, MS, client};
use crate::support::{pgbouncer::PgBouncer, postgres_server::PostgresServer, stopwatch::Moment, until};

/// Those of a store that acquires locks on one runtime: 4 there and 4 on the library's own thread, 2 for renewals, one that looks at revocations, 2 while the
/// one that listens is made, and one that asks after statements without an answer.
const MAX_BACKENDS: u32 = 4 + 4 + 2 + 1 + 2 + 1;

/// The sessions that are not the test's own.
fn backends(server: &PostgresServer) -> u32 {
    let count = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' \
                 AND application_name <> '' AND application_name <> 'foreign'";
    server.value(count).unwrap().parse().unwrap()
}

/// Tasks that each ask for a lock of their own, again and again, until it is dropped.
struct Load {
    ends: Arc<AtomicBool>,
    held: Arc<AtomicU32>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn of(locks: &LockManager, name: &'static str, tasks: usize) -> Self {
        let (ends, held) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let task = |number| {
            let (locks, ends, held) = (locks.clone(), Arc::clone(&ends), Arc::clone(&held));
            tokio::spawn(async move {
                while !ends.load(Ordering::Relaxed) {
                    match locks.lock(format!("{name} {number}")).wait(1000 * MS).acquire().await {
                        Ok(guard) => {
                            held.fetch_add(1, Ordering::Relaxed);
                            // Some are not confirmed while the server is hurt.
                            let _ = guard.release().await;
                        }
                        Err(error) => assert!(error.is_retryable(), "{error}"),
                    }
                    tokio::time::sleep(MS).await;
                }
            })
        };
        let tasks = (0..tasks).map(task).collect();
        Self { ends, held, tasks }
    }

    fn held(&self) -> u32 {
        self.held.load(Ordering::Relaxed)
    }

    async fn ends(self) {
        self.ends.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

/// Returns the largest number of backends in this time.
async fn most_backends(server: &PostgresServer, time: Duration) -> u32 {
    let (began, mut counts) = (Instant::now(), Vec::new());
    while began.elapsed() < time {
        counts.push(backends(server));
        tokio::time::sleep(100 * MS).await;
    }
    println!("backends: {counts:?}");
    counts.into_iter().max().unwrap_or_default()
}

/// Asks for locks while the server answers no statement that writes, and then answers them again.
async fn no_more_than(
    most: u32,
    server: &PostgresServer,
    locks: &LockManager,
    hurt: impl FnOnce(),
    heal: impl FnOnce(),
) {
    let guard = locks.lock("held").ttl(2000 * MS).acquire().await.unwrap();
    let load = Load::of(locks, "k", 20);
    tokio::time::sleep(500 * MS).await;
    assert!(load.held() > 0);
    hurt();
    let seen = most_backends(server, 8000 * MS).await;
    assert!(seen <= most, "{seen} backends");
    let before = load.held();
    heal();
    until("locks are acquired again", || if load.held() > before { Ok(()) } else { Err(load.held()) }).await;
    load.ends().await;
    drop(guard);
    locks.lock("after").wait(LONG).acquire().await.unwrap().release().await.unwrap();
}

async fn no_more_while_the_table_is_locked(server: &PostgresServer, locks: &LockManager) {
    let locking = RefCell::new(None);
    let hurt = || {
        let mut session = server.session();
        session.query("BEGIN; LOCK TABLE distributed_locks").unwrap();
        locking.replace(Some(session));
    };
    no_more_than(MAX_BACKENDS, server, locks, hurt, || drop(locking.take())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_table_costs_no_more_connections() {
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    no_more_while_the_table_is_locked(&server, &locks).await;
}

/// A commit that waits for a replica is neither cancelled nor counted as ended: what it did would show without being safe.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_absent_replica_costs_no_more_connections() {
    let server = PostgresServer::start(&["wal_level=replica", "max_wal_senders=2"]);
    let locks = client(&server).await;
    let replicas = |names: &str| {
        let mut session = server.session();
        session.query("SET synchronous_commit = local").unwrap();
        session.query(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'")).unwrap();
        session.query("SELECT pg_reload_conf()").unwrap();
    };
    no_more_than(MAX_BACKENDS, &server, &locks, || replicas("nobody"), || replicas("")).await;
    assert!(!server.log().contains("canceling"), "{}", server.log());
}

/// Until the commit ends, the release in the background finds the row locked, and another client's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquisition_that_is_long_in_its_commit_is_undone() {
    let server = PostgresServer::start(&["wal_level=replica", "max_wal_senders=2"]);
    let (ours, theirs) = (client(&server).await, client(&server).await);
    for locks in [&ours, &theirs] {
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    }
    let replicas = |names: &str| {
        let mut session = server.session();
        session.query("SET synchronous_commit = local").unwrap();
        session.query(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'")).unwrap();
        session.query("SELECT pg_reload_conf()").unwrap();
    };
    replicas("nobody");
    tokio::time::sleep(300 * MS).await;
    let error = ours.lock("k").ttl(3 * LONG).try_acquire().await.expect_err("no commit ends");
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    // Longer than a request that was sent by then may be executed.
    tokio::time::sleep(4000 * MS).await;
    replicas("");
    let healed = Moment::now();
    theirs.lock("k").wait(LONG).acquire().await.unwrap().release().await.unwrap();
    assert!(healed.within(3000 * MS), "only after {:?}", healed.took());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_table_costs_no_more_connections_behind_a_pooler() {
    let server = PostgresServer::start(&[]);
    client(&server).await.shutdown().await;
    let bouncer = PgBouncer::start(&server, "transaction");
    let locks = LockManager::connect(&format!(
        "postgres:///postgres?host={}&user=postgres",
        bouncer.folder().display()
    ))
    .await
    .unwrap();
    no_more_while_the_table_is_locked(&server, &locks).await;
    // No setting stays in the sessions that others are lent.
    let mut session = crate::support::postgres_protocol::Session::connect(&bouncer.socket()).unwrap();
    for _ in 0..10 {
        assert_eq!(session.query("SHOW lock_timeout").unwrap()[0][0].as_deref(), Some("0"));
    }
}

/// The user's own statements need its connections, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_table_costs_no_more_connections_of_the_user_s_pool() {
    let server = PostgresServer::start(&[]);
    client(&server).await.shutdown().await;
    let options = PgConnectOptions::new().socket(server.folder()).username("postgres").database("postgres");
    let pool = PgPoolOptions::new().max_connections(4).connect_lazy_with(options.application_name("user"));
    let locks = LockManager::new(Postgres::from_pool(pool.clone()));
    no_more_while_the_table_is_locked(&server, &locks).await;
    // Nothing of it stays in the sessions of the user.
    for _ in 0..10 {
        let timeout: String = sqlx::query_scalar("SHOW lock_timeout").fetch_one(&pool).await.unwrap();
        assert_eq!(timeout, "0");
    }
}

/// The server lets a second transaction that creates a row wait for the first one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_being_created_delays_no_other_lock_and_costs_no_connection() {
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    let mut session = server.session();
    session.query("BEGIN").unwrap();
    session
        .query("INSERT INTO distributed_locks (name, version, expires_at) VALUES ('k', 1, now())")
        .unwrap();
    // Another client is about to have it. Other statements wait for 0.5 s.
    let mut took = Vec::new();
    for _ in 0..5 {
        let asked = Moment::now();
        assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
        took.push(asked.took());
    }
    assert!(took.iter().any(|took| took.within(400 * MS)), "{took:?}");
    let error = locks.lock("k").wait(500 * MS).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    // Several clients, because one has one waiter for each lock.
    let mut waiters = Vec::new();
    for _ in 0..8 {
        let lock = client(&server).await.lock("k").wait(LONG);
        waiters.push(tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() }));
    }
    let lock = locks.lock("k").wait(LONG);
    waiters.push(tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() }));
    let (began, mut took) = (Instant::now(), Vec::new());
    while began.elapsed() < 3000 * MS {
        let asked = Moment::now();
        locks.lock(format!("other {}", took.len() % 4)).acquire().await.unwrap().release().await.unwrap();
        took.push(asked.took());
        tokio::time::sleep(MS).await;
    }
    took.sort_by_key(|took| took.real);
    println!("another lock: {:?}, at most {:?}", took[took.len() / 2], took[took.len() - 1]);
    assert!(took.iter().all(|took| took.within(300 * MS)), "{took:?}");
    let count = backends(&server);
    assert!(count <= 9 * 4, "{count} backends");
    session.query("ROLLBACK").unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_does_not_wait_for_a_locked_table_to_the_end() {
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    let warm = locks.lock("warm").acquire().await.unwrap();
    let mut session = server.session();
    session.query("BEGIN").unwrap();
    session.query("LOCK TABLE distributed_locks").unwrap();
    let began = Moment::now();
    let error = locks.lock("k").try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("locks the table") && error.is_retryable(), "{error}");
    assert!(began.within(1000 * MS), "{:?}", began.took());
    // Nor does a release, or a renewal.
    let error = warm.release().await.unwrap_err();
    assert!(error.to_string().contains("locks the table"), "{error}");
    session.query("ROLLBACK").unwrap();
    locks.lock("warm").wait(LONG).acquire().await.unwrap().release().await.unwrap();
}
