//! Advisory locks: who else uses them, which sessions they can be in, and what becomes of a session.

use std::time::{Duration, Instant};

use lock_runtime::{LockErrorKind, LockManager, backend::PostgresAdvisory};
use sqlx::{Connection, PgConnection, postgres::PgAdvisoryLock};

use super::{LONG, MS, names::is_ours};
use crate::support::{
    pgbouncer::PgBouncer,
    postgres_server::PostgresServer,
    proxy::{Flow, Proxy, Upstream, Way},
    stopwatch::{Moment, most_within},
    until,
};

/// Few of these tests at a time: others beside them measure how long something takes.
static FEW: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(4);

fn url(folder: &std::path::Path, rest: &str) -> String {
    format!("postgres+advisory:///postgres?host={}&user=postgres&create_table=true{rest}", folder.display())
}

async fn client(server: &PostgresServer) -> LockManager {
    LockManager::connect(&url(server.folder(), "")).await.unwrap()
}

/// A connection without this library.
async fn foreign(server: &PostgresServer) -> PgConnection {
    let options = sqlx::postgres::PgConnectOptions::new().socket(server.folder()).username("postgres");
    PgConnection::connect_with(&options.database("postgres")).await.unwrap()
}

/// The number of advisory locks that sessions of the server have, without the marks of the sessions.
fn taken(server: &PostgresServer) -> String {
    server.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1").unwrap()
}

/// The sessions of this library's clients.
fn sessions(server: &PostgresServer) -> String {
    server.value(&format!("SELECT count(*) FROM pg_stat_activity WHERE {}", is_ours())).unwrap()
}

#[tokio::test]
async fn the_same_name_is_the_same_lock_for_sqlx() {
    let _admitted = FEW.acquire().await.unwrap();
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    let mut connection = foreign(&server).await;
    let theirs = PgAdvisoryLock::new("user:42");
    let ours = locks.lock("user:42").acquire().await.unwrap();
    assert!(theirs.try_acquire(&mut connection).await.unwrap().right().is_some(), "both hold it");
    ours.release().await.unwrap();
    let held = theirs.try_acquire(&mut connection).await.unwrap().left().expect("free");
    assert!(locks.lock("user:42").try_acquire().await.unwrap().is_none(), "both hold it");
    // It sends no notification.
    let lock = locks.lock("user:42").wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    tokio::time::sleep(500 * MS).await;
    held.release_now().await.unwrap();
    let released = Moment::now();
    waiter.await.unwrap().release().await.unwrap();
    assert!(released.within(1000 * MS), "{:?}", released.took());
}

/// A session may take its own advisory lock again, and has to give it back as often.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_managers_with_one_session_exclude_each_other() {
    let _admitted = FEW.acquire().await.unwrap();
    let server = PostgresServer::start(&[]);
    let store = PostgresAdvisory::connect(&url(server.folder(), "")).await.unwrap();
    let (ours, theirs) = (LockManager::new(store.clone()), LockManager::new(store));
    let guard = ours.lock("k").acquire().await.unwrap();
    let task = theirs.lock("k");
    let other = tokio::spawn(async move { task.try_acquire().await.unwrap() }).await.unwrap();
    assert!(other.is_none(), "both hold it");
    guard.release().await.unwrap();
    // A waiter of the same session is woken without the server.
    let mut woken = Vec::new();
    for _ in 0..9 {
        let guard = ours.lock("k").acquire().await.unwrap();
        let lock = theirs.lock("k").wait(LONG);
        let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
        tokio::time::sleep(100 * MS).await;
        let (token, released) = (guard.fencing_token(), Moment::now());
        guard.release().await.unwrap();
        let next = waiter.await.unwrap();
        woken.push(released.took());
        assert!(next.fencing_token() > token);
        next.release().await.unwrap();
    }
    assert!(most_within(&woken, 100 * MS), "{woken:?}");
    assert_eq!(taken(&server), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_a_waiter_of_another_session() {
    let _admitted = FEW.acquire().await.unwrap();
    let server = PostgresServer::start(&[]);
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let mut woken = Vec::new();
    for _ in 0..15 {
        let guard = ours.lock("k").acquire().await.unwrap();
        let lock = theirs.lock("k").wait(LONG);
        let waiter = tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            (Moment::now(), guard)
        });
        tokio::time::sleep(100 * MS).await;
        let released = Moment::now();
        guard.release().await.unwrap();
        let (entered, guard) = waiter.await.unwrap();
        woken.push(entered.since(released));
        guard.release().await.unwrap();
    }
    println!("woken after {woken:?}");
    assert!(most_within(&woken, 50 * MS), "{woken:?}");
}

#[tokio::test]
async fn a_pooler_of_transactions_is_refused_and_one_of_sessions_is_not() {
    let _admitted = FEW.acquire().await.unwrap();
    let server = PostgresServer::start(&[]);
    client(&server).await.shutdown().await;
    // A pool of one cannot serve a statement while a transaction is open.
    for (size, tries) in [(30, 3), (1, 1)] {
        let bouncer = PgBouncer::start_with_pool(&server, "transaction", size);
        for _ in 0..tries {
            let error = LockManager::connect(&url(bouncer.folder(), "")).await.unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::Unsupported, "{size}: {error}");
            assert!(error.to_string().contains("use `postgres:`"), "{error}");
        }
    }
    let bouncer = PgBouncer::start(&server, "session");
    for _ in 0..3 {
        // From the second one on, it is lent a session that was there before.
        let locks = LockManager::connect(&url(bouncer.folder(), "")).await.unwrap();
        let guard = locks.lock("k").acquire().await.unwrap();
        assert!(client(&server).await.lock("k").try_acquire().await.unwrap().is_none());
        let held = taken(&server);
        assert_eq!(held, "1");
        // Its session goes back to the pooler, which has others to lend it to.
        std::mem::drop((guard, locks));
        until("nothing is held", || if taken(&server) == "0" { Ok(()) } else { Err(taken(&server)) }).await;
    }
}

/// Connections that are lent again would keep locks without a holder.
#[tokio::test]
async fn a_session_ends_with_its_store() {
    let _admitted = FEW.acquire().await.unwrap();
    let server = PostgresServer::start(&[]);
    // The server would end it, too, but later than this test waits.
    let locks = LockManager::connect(&url(server.folder(), "&session_timeout=30s")).await.unwrap();
    let guard = locks.lock("k").acquire().await.unwrap();
    assert_eq!(taken(&server), "1");
    until("one session is left", || if sessions(&server) == "1" { Ok(()) } else { Err(sessions(&server)) })
        .await;
    drop(locks);
    // The guard needs it.
    tokio::time::sleep(300 * MS).await;
    assert!(guard.is_valid());
    assert_eq!(taken(&server), "1");
    guard.release().await.unwrap();
    until("no session is left", || if sessions(&server) == "0" { Ok(()) } else { Err(sessions(&server)) })
        .await;
}

/// The server waits for longer than the holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_nothing_reaches_stops_before_the_server_frees_its_lock() {
    let _admitted = FEW.acquire().await.unwrap();
    let server = PostgresServer::start(&[]);
    client(&server).await.shutdown().await;
    for round in 0..3_u32 {
        let proxy = Proxy::start(Upstream::Unix(server.socket()));
        let silent = LockManager::connect(&format!(
            "postgres+advisory://postgres@{}/postgres?sslmode=disable&session_timeout=2s",
            proxy.address()
        ))
        .await
        .unwrap();
        let guard = silent.lock("k").acquire().await.unwrap();
        tokio::time::sleep(150 * MS * round).await;
        proxy.black_hole();
        let began = Instant::now();
        let locks = client(&server).await;
        let next = loop {
            if let Some(next) = locks.lock("k").try_acquire().await.unwrap() {
                break next;
            }
            assert!(began.elapsed() < LONG / 2, "the server does not free it");
            tokio::time::sleep(MS).await;
        };
        let took = began.elapsed();
        assert!(!guard.is_valid(), "two hold it");
        println!("free after {took:?}");
        assert!(took < Duration::from_secs(4), "{took:?}");
        assert!(next.fencing_token() > guard.fencing_token());
        next.release().await.unwrap();
        proxy.heal();
    }
}

/// A session of the server that has to write to a client which does not read waits for that, and does nothing else. Every
/// user may notify, and messages of other locks arrive, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_notifications_keeps_no_lock_of_a_suspended_holder() {
    let _admitted = FEW.acquire().await.unwrap();
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    let proxy = Proxy::start(Upstream::Unix(server.socket()));
    let suspended = LockManager::connect(&format!(
        "postgres+advisory://postgres@{}/postgres?sslmode=disable&session_timeout=2s",
        proxy.address()
    ))
    .await
    .unwrap();
    let guard = suspended.lock("k").acquire().await.unwrap();
    for way in [Way::ToClient, Way::ToServer] {
        proxy.set(way, Flow::Hold);
    }
    let began = Instant::now();
    let mut stranger = server.session();
    let flood =
        "SELECT count(pg_notify('lock_40a8c6f599537c14', 'flood ' || n)) FROM generate_series(1, 50000) n";
    stranger.query(flood).unwrap();
    let next = locks.lock("k").wait(LONG).acquire().await.unwrap();
    let took = began.elapsed();
    assert!(!guard.is_valid(), "two hold it");
    println!("free after {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    next.release().await.unwrap();
    proxy.heal();
}

/// A lock is taken whatever becomes of the statement that takes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_whose_row_cannot_be_raised_is_given_back_and_the_others_of_its_statement_are_granted() {
    const MOST: &str = "4503599627370495";
    let _admitted = FEW.acquire().await.unwrap();
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    locks.lock("bad").acquire().await.unwrap().release().await.unwrap();
    server.query(&format!("UPDATE distributed_locks SET version = {MOST} WHERE name LIKE '%bad'"));
    let tasks: Vec<_> = (0..40)
        .map(|number| {
            let name = if number % 10 == 3 { "bad".to_owned() } else { format!("good {number}") };
            let lock = locks.lock(&name).wait(5000 * MS);
            tokio::spawn(async move { (name, lock.acquire().await) })
        })
        .collect();
    let mut guards = Vec::new();
    for task in tasks {
        let (name, answer) = task.await.unwrap();
        match answer {
            Ok(guard) => {
                assert!(name.starts_with("good"));
                guards.push(guard);
            }
            Err(error) => {
                assert_eq!(name, "bad", "{error}");
                assert!(error.to_string().contains("used up"), "{error}");
            }
        }
    }
    assert_eq!(guards.len(), 36);
    until("the bad one is free", || if taken(&server) == "36" { Ok(()) } else { Err(taken(&server)) }).await;
    for guard in guards {
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_locked_holds_up_no_other_lock() {
    let _admitted = FEW.acquire().await.unwrap();
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    let mut session = server.session();
    session.query("BEGIN").unwrap();
    session.query("SELECT FROM distributed_locks WHERE name = E'advisory\\tk' FOR UPDATE").unwrap();
    // It is not free, and that is no failure.
    assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
    let lock = locks.lock("k").wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    let began = Instant::now();
    while began.elapsed() < 1000 * MS {
        let asked = Moment::now();
        locks.lock("other").acquire().await.unwrap().release().await.unwrap();
        assert!(asked.within(800 * MS), "{:?}", asked.took());
    }
    assert!(!waiter.is_finished());
    session.query("ROLLBACK").unwrap();
    let ended = Moment::now();
    waiter.await.unwrap().release().await.unwrap();
    assert!(ended.within(1000 * MS), "{:?}", ended.took());
}

/// The server lets a second transaction that creates a row wait for the first one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_being_created_holds_up_no_other_lock_and_its_own_lock_is_not_taken_twice() {
    let _admitted = FEW.acquire().await.unwrap();
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    locks.lock("other").acquire().await.unwrap().release().await.unwrap();
    let mut session = server.session();
    session.query("BEGIN").unwrap();
    session
        .query("INSERT INTO distributed_locks (name, version, expires_at) VALUES (E'advisory\\tk', 1, now())")
        .unwrap();
    let asked = Instant::now();
    for _ in 0..20 {
        locks.lock("other").acquire().await.unwrap().release().await.unwrap();
    }
    println!("20 cycles alone: {:?}", asked.elapsed());
    // Another client is about to have it. The session's other statements wait for 0.1 s.
    let mut took = Vec::new();
    for _ in 0..5 {
        let asked = Moment::now();
        assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
        took.push(asked.took());
    }
    assert!(took.iter().any(|took| took.within(90 * MS)), "{took:?}");
    let lock = locks.lock("k").wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    let began = Instant::now();
    let mut took = Vec::new();
    while began.elapsed() < 1000 * MS {
        let asked = Moment::now();
        locks.lock("other").acquire().await.unwrap().release().await.unwrap();
        took.push(asked.took());
        tokio::time::sleep(MS).await;
    }
    took.sort_by_key(|took| took.real);
    println!("another lock: {:?}, at most {:?}", took[took.len() / 2], took[took.len() - 1]);
    assert!(took.iter().all(|took| took.within(300 * MS)), "{took:?}");
    session.query("ROLLBACK").unwrap();
    let guard = waiter.await.unwrap();
    assert_eq!(taken(&server), "1");
    guard.release().await.unwrap();
    assert_eq!(taken(&server), "0");
}

#[tokio::test]
async fn tokens_rise_beyond_a_version_from_the_future() {
    let _admitted = FEW.acquire().await.unwrap();
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    server.query("UPDATE distributed_locks SET version = version + 1000000000000");
    let version = || server.value("SELECT version FROM distributed_locks").unwrap().parse::<u64>().unwrap();
    let first = version() + 1;
    for next in first..first + 5 {
        let guard = locks.lock("k").acquire().await.unwrap();
        assert_eq!(version(), next);
        assert_eq!(guard.fencing_token().get() >> 11, next);
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn old_rows_are_removed_and_those_of_today_are_kept() {
    let _admitted = FEW.acquire().await.unwrap();
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    server.query(
        "INSERT INTO distributed_locks (name, version, expires_at) \
         SELECT E'advisory\\told' || n, 1, clock_timestamp() - interval '50 hours' FROM generate_series(1, 300) n",
    );
    for number in 0..300 {
        locks.lock(format!("new{number}")).acquire().await.unwrap().release().await.unwrap();
    }
    let count = |part: &str| {
        server.value(&format!("SELECT count(*) FROM distributed_locks WHERE name LIKE '%{part}%'"))
    };
    until(
        "old rows are gone",
        || if count("old").as_deref() == Some("0") { Ok(()) } else { Err(count("old")) },
    )
    .await;
    assert_eq!(count("new").as_deref(), Some("300"));
}

/// What is protected by both kinds of locks has two tables of locks, in a manner of speaking.
#[tokio::test]
async fn a_row_s_lock_and_an_advisory_lock_of_one_name_are_two_locks() {
    let _admitted = FEW.acquire().await.unwrap();
    let server = PostgresServer::start(&[]);
    let (row, advisory) = (super::client(&server).await, client(&server).await);
    let held = row.lock("k").acquire().await.unwrap();
    let other = advisory.lock("k").try_acquire().await.unwrap().expect("another lock");
    assert!(held.is_valid() && other.is_valid());
    assert_eq!(server.value("SELECT count(*) FROM distributed_locks").as_deref(), Some("2"));
}

/// All sessions of a server share its room for locks.
#[tokio::test]
async fn a_server_without_room_for_locks_is_named_and_those_that_are_held_stay() {
    let _admitted = FEW.acquire().await.unwrap();
    let server = PostgresServer::start(&["max_locks_per_transaction=10", "max_connections=20"]);
    let locks = client(&server).await;
    let mut guards = Vec::new();
    let error = loop {
        match locks.lock(format!("k{}", guards.len())).wait(300 * MS).acquire().await {
            Ok(guard) => guards.push(guard),
            Err(error) => break error,
        }
        assert!(guards.len() < 20_000, "no end of the room");
    };
    println!("{} locks, then {error}", guards.len());
    assert!(error.to_string().contains("max_locks_per_transaction"), "{error}");
    assert!(guards.len() > 100 && guards.iter().all(lock_runtime::LockGuard::is_valid));
    // Room for one more.
    guards.pop().unwrap().release().await.unwrap();
    guards.pop().unwrap().release().await.unwrap();
    locks.lock("last").acquire().await.unwrap().release().await.unwrap();
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(taken(&server), "0");
}

#[tokio::test]
async fn a_server_without_a_table_and_one_that_takes_no_changes_are_named() {
    let _admitted = FEW.acquire().await.unwrap();
    let server = PostgresServer::start(&["default_transaction_read_only=on"]);
    let error = LockManager::connect(&url(server.folder(), "")).await.unwrap_err();
    assert!(error.to_string().contains("takes no changes") || error.to_string().contains("read"), "{error}");
    let plain = PostgresServer::start(&[]);
    let error = LockManager::connect(&format!(
        "postgres+advisory:///postgres?host={}&user=postgres",
        plain.folder().display()
    ))
    .await
    .unwrap_err();
    assert!(error.to_string().contains("CREATE TABLE"), "{error}");
}
