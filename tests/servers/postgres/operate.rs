//! Operators look at the locks in the table, and take them from their holders.

use std::time::{Duration, Instant};

use lock_runtime::{
    LockErrorKind, LockManager,
    backend::postgres::{TABLE, fence::CheckIn},
};

use super::{LONG, MS, client, pool, url};
use crate::support::{
    postgres_server::{PostgresServer, USER},
    until,
};

/// The channel of the table's notifications.
const CHANNEL: &str = "lock_40a8c6f599537c14";

#[tokio::test]
async fn a_revoked_lease_ends_when_it_would_have_ended() {
    let server = PostgresServer::start(&[]);
    let (locks, operator) = (client(&server).await.ttl(1500 * MS), client(&server).await);
    let guard = locks.lock("k").acquire().await.unwrap();
    assert!(operator.revoke("k", guard.fencing_token()).await.unwrap());
    let end = || server.value("SELECT expires_at FROM distributed_locks WHERE name = 'k'");
    let before = end();
    // A renewal that comes late is refused. The owner does not get the same grant again, either, as by an attempt that was
    // sent twice.
    for sql in [
        include_str!("../../../lock-runtime/src/backend/stores/postgres/sql/renew.sql"),
        include_str!("../../../lock-runtime/src/backend/stores/postgres/sql/take.sql"),
        include_str!("../../../lock-runtime/src/backend/stores/postgres/sql/acquire.sql"),
    ] {
        let owner = server.value("SELECT owner FROM distributed_locks WHERE name = 'k'").unwrap();
        let is_renewal = sql.contains("$3 ttls");
        let owner = if is_renewal { format!("ARRAY['{owner}']::uuid[]") } else { format!("'{owner}'::uuid") };
        let name = if is_renewal { "ARRAY['k']::text[]" } else { "'k'::text" };
        let ttl = if is_renewal { "ARRAY[60000000]::bigint[]" } else { "60000000::bigint" };
        let args =
            [name, &owner, ttl, "9000000000000000", "'late'::text", "0::bigint", "0::bigint", "NULL", "1"];
        let mut text = sql.replace("{table}", "distributed_locks");
        for (number, arg) in args.iter().enumerate().rev() {
            text = text.replace(&format!("${}", number + 1), arg);
        }
        server.query(&text);
        assert_eq!(end(), before, "{sql}");
    }
    guard.lost().await;
    let waited = Instant::now();
    // The guard stays.
    let next = operator.lock("k").wait(LONG).acquire().await.unwrap();
    println!("granted after {:?}", waited.elapsed());
    drop(guard);
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_check_in_is_refused_after_a_revocation_and_keeps_off_force() {
    let server = PostgresServer::start(&[]);
    let (locks, operator) = (client(&server).await, client(&server).await);
    let pool = pool(&server);
    let guard = locks.lock("k").acquire().await.unwrap();
    let token = guard.fencing_token();
    let mut transaction = pool.begin().await.unwrap();
    guard.check_in(&mut transaction).await.unwrap();
    // The row is locked, but not against a mark.
    assert!(operator.revoke("k", token).await.unwrap());
    let mut late = pool.begin().await.unwrap();
    let error = guard.check_in(&mut late).await.unwrap_err();
    assert!(error.kind() == LockErrorKind::Lost && error.to_string().contains("revoked"), "{error}");
    late.rollback().await.unwrap();
    let error = operator.revoke_by_force("k", token).await.unwrap_err();
    assert!(error.kind() == LockErrorKind::Backend && error.to_string().contains("checked in"), "{error}");
    assert!(operator.lock("k").try_acquire().await.unwrap().is_none(), "the transaction depends on the lock");
    transaction.commit().await.unwrap();
    assert!(operator.revoke_by_force("k", token).await.unwrap());
    operator.lock("k").acquire().await.unwrap().release().await.unwrap();
}

/// Any user of the database may send them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_notices_of_revocations_make_the_holder_look_now_and_then() {
    let server = PostgresServer::start(&["log_statement=all"]);
    let (rows, advisory) = (client(&server).await, {
        let url = url(&server, "").replace("postgres:", "postgres+advisory:");
        LockManager::connect(&url).await.unwrap()
    });
    let guards = [rows.lock("k").acquire().await.unwrap(), advisory.lock("k").acquire().await.unwrap()];
    // A store listens while a task waits for the lock of another client.
    let [other_rows, other_advisory] = [client(&server).await, {
        let url = url(&server, "").replace("postgres:", "postgres+advisory:");
        LockManager::connect(&url).await.unwrap()
    }];
    let others = [
        other_rows.lock("other").acquire().await.unwrap(),
        other_advisory.lock("other").acquire().await.unwrap(),
    ];
    let waiters = [&rows, &advisory].map(|locks| {
        let lock = locks.lock("other").wait(LONG);
        tokio::spawn(async move { lock.acquire().await.map(drop) })
    });
    // Each listening connection, and each session of advisory locks, proves that it is no pooler's.
    let proofs = || server.log().matches(", 'proof ").count();
    until("both listen", || if proofs() >= 4 { Ok(()) } else { Err(proofs()) }).await;
    tokio::time::sleep(500 * MS).await;
    let looks = || server.log().matches("E'\\trevocations'").count();
    let (before, began) = (looks(), Instant::now());
    let mut session = server.session();
    while began.elapsed() < Duration::from_secs(3) {
        session.query(&format!("NOTIFY {CHANNEL}, 'revoked'; NOTIFY {CHANNEL}, 'revoked now'")).unwrap();
    }
    let (seen, took) = (looks() - before, began.elapsed());
    println!("{seen} looks in {took:?}");
    // Without notices, there would be two looks a second for each of the four clients.
    let without = 8.0 * took.as_secs_f64();
    let most = (2.0 * 10.0 + 2.0 * 2.0) * took.as_secs_f64() + 10.0;
    let seen = f64::from(u32::try_from(seen).unwrap());
    assert!(seen > without + 4.0 && seen < most, "{seen} looks in {took:?}");
    for guard in guards.into_iter().chain(others) {
        assert!(guard.is_valid());
        guard.release().await.unwrap();
    }
    for waiter in waiters {
        waiter.await.unwrap().unwrap();
    }
}

/// Neither a mark nor a look needs a notification.
#[tokio::test]
async fn a_revocation_without_a_notification_reaches_the_holder() {
    let server = PostgresServer::start(&[]);
    client(&server).await;
    server.refuse_notifications();
    for scheme in ["postgres:", "postgres+advisory:"] {
        let url = url(&server, "").replace("postgres:", scheme);
        let [locks, operator] =
            [LockManager::connect(&url).await.unwrap(), LockManager::connect(&url).await.unwrap()];
        let guard = locks.lock("k").acquire().await.unwrap();
        tokio::time::sleep(700 * MS).await;
        assert!(operator.revoke("k", guard.fencing_token()).await.unwrap());
        let revoked = Instant::now();
        tokio::time::timeout(Duration::from_secs(5), guard.lost()).await.expect("within two looks");
        println!("{scheme} {:?}", revoked.elapsed());
    }
}

/// An operator needs no other rights than a client.
#[tokio::test]
async fn a_user_with_the_rights_on_the_table_alone_sees_and_revokes_all() {
    let server = PostgresServer::start(&[]);
    server.query(TABLE);
    server.query(&format!(
        "ALTER ROLE {USER} PASSWORD 'secret'; GRANT SELECT, INSERT, UPDATE, DELETE ON distributed_locks TO {USER}"
    ));
    let of_user = url(&server, "").replace("user=postgres", &format!("user={USER}&password=secret"));
    let (locks, operator) = (client(&server).await, LockManager::connect(&of_user).await.unwrap());
    let guards = [locks.lock("a").acquire().await.unwrap(), locks.lock("b").acquire().await.unwrap()];
    let state = operator.inspect("a").await.unwrap();
    assert_eq!(state.holders[0].token(), Some(guards[0].fencing_token()));
    let mut scan = operator.scan("");
    let mut found = Vec::new();
    while let Some(lock) = scan.next().await {
        found.push(lock.unwrap().key.to_string());
    }
    found.sort();
    assert_eq!(found, ["a", "b"]);
    assert!(operator.revoke("a", guards[0].fencing_token()).await.unwrap());
    assert!(operator.revoke_by_force("b", guards[1].fencing_token()).await.unwrap());
    for guard in guards {
        guard.lost().await;
    }
}

/// Rows that were written by hand, and what is no name of a lock.
#[tokio::test]
async fn odd_rows_are_shown_or_left_out_and_end_no_scan() {
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    let guard = locks.lock("m").acquire().await.unwrap();
    server.query(
        "INSERT INTO distributed_locks (name, owner, version, expires_at, holder, wanted_until, revoked) VALUES \
         ('a', gen_random_uuid(), 9223372036854775807, 'infinity', E'\\x1b[31m', 'infinity', 1), \
         ('b', gen_random_uuid(), -9223372036854775808, '294276-12-31', 'x,%1B@%0A,y', '-infinity', NULL), \
         (E'c\\nd', gen_random_uuid(), 1, 'infinity', '', 'infinity', 1), \
         (repeat('x', 2000), gen_random_uuid(), 1, 'infinity', '', 'infinity', 1), \
         ('z', gen_random_uuid(), 1, clock_timestamp() - interval '1 s', '', 'infinity', 1)",
    );
    let (mut scan, mut found) = (locks.scan(""), Vec::new());
    while let Some(lock) = scan.next().await {
        let lock = lock.unwrap();
        let holder = &lock.holders[0];
        assert!(!format!("{:?}{:?}", holder.client(), holder.label()).contains("\\u{1b}"), "{holder:?}");
        if lock.key.as_str() != "m" {
            assert_eq!(holder.remaining(), Some(Duration::MAX));
        }
        found.push(lock.key.to_string());
    }
    assert_eq!(found, ["a", "b", "m"]);
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_reads_a_hundred_thousand_locks_in_short_statements() {
    let server = PostgresServer::start(&["log_min_duration_statement=0"]);
    let locks = client(&server).await;
    server.query(
        "INSERT INTO distributed_locks (name, owner, version, expires_at, holder) SELECT 'many:' || n, gen_random_uuid(), n, \
         'infinity', 'program,1@host,label' FROM generate_series(1, 100000) n",
    );
    let (mut scan, mut found) = (locks.scan("many:"), 0);
    let began = Instant::now();
    while let Some(lock) = scan.next().await {
        lock.unwrap();
        found += 1;
    }
    println!("{found} locks in {:?}", began.elapsed());
    assert_eq!(found, 100_000);
    let log = server.log();
    let pages =
        log.lines().filter(|line| line.contains("duration: ") && line.contains("SET LOCAL lock_timeout"));
    let mut took: Vec<f64> =
        pages.filter_map(|line| line.split_once("duration: ")?.1.split_once(" ms")?.0.parse().ok()).collect();
    took.sort_by(f64::total_cmp);
    let median = took[took.len() / 2];
    println!("{} statements, median {median} ms, longest {:?} ms", took.len(), took.last());
    assert!(took.len() > 190 && median < 10.0, "{median} ms for half of the statements");
}
