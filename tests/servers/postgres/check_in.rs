//! Transactions that depend on a lock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use lock_runtime::{
    LockErrorKind, LockManager,
    backend::{Postgres, postgres::fence::CheckIn},
};
use sqlx::{PgPool, postgres::PgConnectOptions};

use super::{LONG, MS, client, pool};
use crate::support::{
    Random,
    postgres_server::PostgresServer,
    proxy::{Flow, Proxy, Upstream, Way},
    stopwatch::Moment,
};

/// A server with documents, each of which counts the writes that came after one with a larger token.
fn documents(count: u32) -> PostgresServer {
    let server = PostgresServer::start(&[]);
    server.query(&format!(
        "CREATE TABLE document (id int PRIMARY KEY, token bigint NOT NULL DEFAULT 0, text text, late int NOT NULL DEFAULT \
         0); INSERT INTO document (id) SELECT generate_series(1, {count})"
    ));
    server
}

const WRITE: &str =
    "UPDATE document SET late = late + (token > $1)::int, token = $1, text = $2 WHERE id = $3";

/// A pool whose requests can be held back, as if the process had been paused before it sent them.
fn pool_through(proxy: &Proxy) -> PgPool {
    let address = proxy.address();
    let options = PgConnectOptions::new().host("127.0.0.1").port(address.port());
    PgPool::connect_lazy_with(options.username("postgres").database("postgres"))
}

/// A thousand holders that are paused for longer or shorter after they have checked that the lock is valid, each with a
/// next holder. Returns the number of late writes, and of holders that were told of their loss.
async fn thousand_pauses(with_check_in: bool) -> (u32, u32) {
    const ROUNDS: u64 = 25;
    const AT_ONCE: i32 = 40;
    let seed = Random::seed();
    println!("LOCK_TEST_SEED={seed}");
    let server = Arc::new(documents(40));
    let (a, b) = (client(&server).await, client(&server).await);
    let direct = pool(&server);
    let refused = Arc::new(AtomicU32::new(0));
    let holders = (1..=AT_ONCE).map(|id| {
        let (a, b, direct, refused, server) =
            (a.clone(), b.clone(), direct.clone(), Arc::clone(&refused), Arc::clone(&server));
        tokio::spawn(async move {
            let mut random = Random::from_seed(seed ^ u64::from(id.unsigned_abs()));
            let proxy = Proxy::start(Upstream::Unix(server.socket()));
            let pool = pool_through(&proxy);
            for _ in 0..ROUNDS {
                let name = format!("document {id}");
                let lock = a.lock(&name).ttl(100 * MS).auto_renew(false).wait(LONG);
                let guard = lock.acquire().await.unwrap();
                let mut transaction = pool.begin().await.unwrap();
                if !guard.is_valid() {
                    continue;
                }
                // Paused here, after the last look at the clock.
                proxy.set(Way::ToServer, Flow::Hold);
                let pause = Duration::from_millis(random.below(250));
                let (next, direct) = (b.lock(&name).wait(LONG), direct.clone());
                let next = tokio::spawn(async move {
                    let next = next.acquire().await.unwrap();
                    sqlx::query(WRITE)
                        .bind(next.fencing_token())
                        .bind("next")
                        .bind(id)
                        .execute(&direct)
                        .await
                        .unwrap();
                    next.release().await.unwrap();
                });
                let write = async {
                    if with_check_in && let Err(error) = guard.check_in(&mut transaction).await {
                        assert_eq!(error.kind(), LockErrorKind::Lost, "{error}");
                        refused.fetch_add(1, Ordering::Relaxed);
                        return transaction.rollback().await.unwrap();
                    }
                    let write = sqlx::query(WRITE).bind(guard.fencing_token()).bind("paused").bind(id);
                    write.execute(&mut *transaction).await.unwrap();
                    transaction.commit().await.unwrap();
                };
                let wake_up = async {
                    tokio::time::sleep(pause).await;
                    proxy.heal();
                };
                tokio::join!(write, wake_up);
                drop(guard);
                next.await.unwrap();
            }
        })
    });
    for holder in holders.collect::<Vec<_>>() {
        holder.await.unwrap();
    }
    let late = server.value("SELECT sum(late) FROM document").unwrap().parse().unwrap();
    (late, refused.load(Ordering::Relaxed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_paused_holder_commits_a_late_write_and_without_checking_in_some_do() {
    let (late, refused) = thousand_pauses(true).await;
    println!("checked in: {late} late writes, {refused} of 1000 refused");
    assert_eq!(late, 0);
    assert!(refused > 50, "{refused} holders were paused for long enough");
    let (late, _) = thousand_pauses(false).await;
    println!("not checked in: {late} late writes");
    assert!(late > 50, "{late} writes came late");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_twice_the_ttl_holds_up_no_renewal() {
    let server = documents(1);
    let locks = client(&server).await.ttl(1000 * MS);
    let guard = locks.lock("checked in").acquire().await.unwrap();
    let mut others = Vec::new();
    for number in 0..100 {
        others.push(locks.lock(format!("other {number}")).acquire().await.unwrap());
    }
    let pool = pool(&server);
    let mut transaction = pool.begin().await.unwrap();
    guard.check_in(&mut transaction).await.unwrap();
    let contender = client(&server).await;
    let began = Instant::now();
    while began.elapsed() < 2000 * MS {
        assert!(guard.is_valid() && others.iter().all(lock_runtime::LockGuard::is_valid));
        assert!(contender.lock("checked in").try_acquire().await.unwrap().is_none());
        tokio::time::sleep(20 * MS).await;
    }
    sqlx::query(WRITE)
        .bind(guard.fencing_token())
        .bind("x")
        .bind(1)
        .execute(&mut *transaction)
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    guard.release().await.unwrap();
    for other in others {
        other.release().await.unwrap();
    }
    contender.lock("checked in").try_acquire().await.unwrap().expect("free").release().await.unwrap();
}

/// Also if the lease ends meanwhile: the next holder enters when the transaction has ended.
#[tokio::test]
async fn no_other_is_granted_the_lock_while_the_transaction_is_open() {
    let server = documents(1);
    let (locks, other, pool) = (client(&server).await, client(&server).await, pool(&server));
    for ends_by_itself in [false, true] {
        let guard = locks.lock("k").ttl(300 * MS).auto_renew(!ends_by_itself).acquire().await.unwrap();
        let mut transaction = pool.begin().await.unwrap();
        guard.check_in(&mut transaction).await.unwrap();
        // One in this process, one in another.
        let next = |locks: &LockManager| {
            let lock = locks.lock("k").wait(LONG);
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                let entered = Moment::now();
                guard.release().await.unwrap();
                entered
            })
        };
        let waiters = [next(&locks), next(&other)];
        tokio::time::sleep(100 * MS).await;
        if ends_by_itself {
            tokio::time::sleep(500 * MS).await;
            assert!(!guard.is_valid());
            drop(guard);
        } else {
            let error = guard.release().await.unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::Backend);
            assert!(error.to_string().contains("still open"), "{error}");
        }
        tokio::time::sleep(300 * MS).await;
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "the transaction is open");
        let ended = Moment::now();
        transaction.commit().await.unwrap();
        for waiter in waiters {
            let entered = waiter.await.unwrap();
            assert!(entered >= ended && entered.since(ended).within(1500 * MS), "{:?}", entered.since(ended));
        }
    }
}

/// Right after the grant, when the lock would otherwise pass to the next task of the process.
#[tokio::test]
async fn a_lock_is_not_handed_over_while_a_transaction_depends_on_its_holder() {
    let server = documents(1);
    let (locks, pool) = (client(&server).await, pool(&server));
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    for round in 0..5 {
        let mut transaction = pool.begin().await.unwrap();
        let guard = locks.lock("k").acquire().await.unwrap();
        let lock = locks.lock("k").wait(LONG);
        let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
        tokio::task::yield_now().await;
        guard.check_in(&mut transaction).await.unwrap();
        drop(guard);
        tokio::time::sleep(50 * MS).await;
        assert!(
            !waiter.is_finished(),
            "in round {round}, the next holder entered before the end of the transaction"
        );
        transaction.commit().await.unwrap();
        waiter.await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_lock_that_is_lost_or_held_elsewhere_is_no_ground_to_commit() {
    let server = documents(1);
    let (locks, pool) = (client(&server).await, pool(&server));
    let guard = locks.lock("k").ttl(LONG).acquire().await.unwrap();
    server.query("UPDATE distributed_locks SET owner = gen_random_uuid()");
    let mut transaction = pool.begin().await.unwrap();
    let error = guard.check_in(&mut transaction).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost, "{error}");
    assert!(error.to_string().contains("roll the transaction back"), "{error}");
    drop(transaction);
    drop(guard);

    // The statement is one of the transaction: an error ends it, and is passed on.
    server.query("CREATE DATABASE other");
    let guard = locks.lock("k2").ttl(LONG).acquire().await.unwrap();
    let options = pool.connect_options().as_ref().clone().database("other");
    let other = PgPool::connect_lazy_with(options);
    let mut transaction = other.begin().await.unwrap();
    let error = guard.check_in(&mut transaction).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    assert!(error.to_string().contains("does not exist"), "{error}");
    drop(transaction);

    let elsewhere = LockManager::connect("memory:").await.unwrap();
    let held = elsewhere.lock("k").acquire().await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    let error = held.check_in(&mut transaction).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unsupported, "{error}");
}

/// The check-in reads the row of the transaction's snapshot, and must find out that it is no longer the latest.
#[tokio::test]
async fn a_transaction_with_an_old_snapshot_is_refused_unless_the_lock_was_only_renewed() {
    let server = documents(1);
    let (locks, other, pool) = (client(&server).await, client(&server).await, pool(&server));
    for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
        let with_snapshot = async || {
            let begin = sqlx::AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {isolation}"));
            let mut transaction = pool.begin_with(begin).await.unwrap();
            sqlx::query("SELECT 1 FROM document").execute(&mut *transaction).await.unwrap();
            transaction
        };
        let guard = locks.lock("k").ttl(300 * MS).acquire().await.unwrap();
        let mut transaction = with_snapshot().await;
        tokio::time::sleep(500 * MS).await;
        guard.check_in(&mut transaction).await.unwrap();
        // Its row is locked already.
        tokio::time::sleep(200 * MS).await;
        guard.check_in(&mut transaction).await.unwrap();
        transaction.commit().await.unwrap();
        guard.release().await.unwrap();

        // Taken away, which the holder does not know yet: released, and then granted to another.
        for is_granted in [false, true] {
            let guard = locks.lock("k").ttl(LONG).acquire().await.unwrap();
            let mut transaction = with_snapshot().await;
            let text = "UPDATE distributed_locks SET expires_at = now() WHERE name = 'k'";
            server.query(text);
            let next = other.lock("k").acquire().await.unwrap();
            if !is_granted {
                next.release().await.unwrap();
            }
            let error = guard.check_in(&mut transaction).await.unwrap_err();
            assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
            assert!(error.to_string().contains("roll it back"), "{error}");
        }
        // The same with a row that was only read when its holder had left.
        let guard = locks.lock("k2").ttl(LONG).acquire().await.unwrap();
        let mut transaction = with_snapshot().await;
        let held = guard.held();
        let release = "BEGIN; SELECT FROM distributed_locks WHERE name = 'k2' FOR UPDATE; UPDATE distributed_locks SET \
                       owner = NULL WHERE name = 'k2'; COMMIT";
        server.query(release);
        held.check_in(&mut transaction).await.unwrap_err();
        drop(guard);
    }
}

/// The user's pool is used up by the user; the locks on it are renewed.
#[tokio::test]
async fn renewals_do_not_wait_for_the_user_s_pool() {
    let server = documents(1);
    client(&server).await.shutdown().await;
    let options = pool(&server).connect_options().as_ref().clone();
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(2).connect_lazy_with(options);
    let locks = LockManager::new(Postgres::from_pool(pool.clone())).ttl(600 * MS);
    locks.ping().await.unwrap();
    let guard = locks.lock("k").acquire().await.unwrap();
    let busy = [pool.begin().await.unwrap(), pool.begin().await.unwrap()];
    let began = Instant::now();
    while began.elapsed() < 1500 * MS {
        assert!(guard.is_valid());
        tokio::time::sleep(10 * MS).await;
    }
    let error = locks.lock("other").wait(100 * MS).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    drop(busy);
    guard.release().await.unwrap();
    locks.lock("other").acquire().await.unwrap().release().await.unwrap();
}

/// By an operator, or by anything else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_locked_delays_no_other_renewal() {
    let server = documents(1);
    let locks = client(&server).await.ttl(800 * MS);
    let locked = locks.lock("locked").acquire().await.unwrap();
    let mut others = Vec::new();
    for number in 0..20 {
        others.push(locks.lock(format!("other {number}")).acquire().await.unwrap());
    }
    let mut session = server.session();
    session.query("BEGIN").unwrap();
    session.query("SELECT FROM distributed_locks WHERE name = 'locked' FOR UPDATE").unwrap();
    let began = Instant::now();
    while began.elapsed() < 1600 * MS {
        assert!(others.iter().all(lock_runtime::LockGuard::is_valid), "after {:?}", began.elapsed());
        tokio::time::sleep(10 * MS).await;
    }
    assert!(!locked.is_valid(), "its row cannot be renewed");
    session.query("ROLLBACK").unwrap();
    for other in others {
        other.release().await.unwrap();
    }
}

#[tokio::test]
async fn an_attempt_at_a_row_that_is_locked_ends_at_once() {
    let server = documents(1);
    let locks = client(&server).await;
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    let mut session = server.session();
    session.query("BEGIN").unwrap();
    session.query("SELECT FROM distributed_locks WHERE name = 'k' FOR UPDATE").unwrap();
    let began = Moment::now();
    assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
    assert!(began.within(500 * MS), "{:?}", began.took());
    let error = locks.lock("k").wait(300 * MS).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    let lock = locks.lock("k").wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
    tokio::time::sleep(100 * MS).await;
    session.query("ROLLBACK").unwrap();
    let began = Moment::now();
    waiter.await.unwrap();
    assert!(began.within(300 * MS), "{:?}", began.took());
}
