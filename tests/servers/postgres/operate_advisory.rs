//! Operators look at advisory locks, and take them from their holders.

use std::time::Duration;

use lock_runtime::{LockErrorKind, LockManager, backend::postgres::TABLE};
use sqlx::{Connection, Executor, PgConnection, postgres::PgAdvisoryLock};

use super::MS;
use crate::support::{postgres_server::PostgresServer, until};

/// The URL of a user without a password.
fn url(server: &PostgresServer, user: &str) -> String {
    format!("postgres+advisory:///postgres?host={}&user={user}", server.folder().display())
}

async fn client(server: &PostgresServer, user: &str) -> LockManager {
    LockManager::connect(&url(server, user)).await.unwrap()
}

async fn foreign(server: &PostgresServer) -> PgConnection {
    let options = sqlx::postgres::PgConnectOptions::new().socket(server.folder()).username("postgres");
    PgConnection::connect_with(&options.database("postgres").application_name("billing")).await.unwrap()
}

/// A server with the table, and users who may use it.
fn with_users(users: &[&str]) -> PostgresServer {
    let server = PostgresServer::start(&[]);
    server.query(TABLE);
    for user in users {
        server.query(&format!(
            "CREATE ROLE {user} LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON distributed_locks TO {user}"
        ));
    }
    server
}

/// Its name has a row, from an earlier holder of ours.
#[tokio::test]
async fn a_holder_of_another_program_is_not_the_holder_in_the_row() {
    let server = with_users(&[]);
    let locks = client(&server, "postgres").await;
    let ours = locks.lock("k").label("ours").acquire().await.unwrap();
    let token = ours.fencing_token();
    ours.release().await.unwrap();
    let other = locks.lock("other").acquire().await.unwrap();
    let mut connection = foreign(&server).await;
    let held = PgAdvisoryLock::new("k").try_acquire(&mut connection).await.unwrap().left().expect("free");
    let state = locks.inspect("k").await.unwrap();
    let holder = &state.holders[0];
    assert!(holder.is_foreign() && holder.token().is_none() && holder.label().is_none(), "{state:?}");
    assert_eq!((holder.client(), state.mode), (Some("billing"), None));
    let (mut scan, mut found) = (locks.scan(""), Vec::new());
    while let Some(lock) = scan.next().await {
        let lock = lock.unwrap();
        found.push((lock.key.to_string(), lock.holders[0].is_foreign()));
    }
    assert_eq!(found, [("k".to_owned(), true), ("other".to_owned(), false)]);
    assert!(!locks.revoke("k", token).await.unwrap(), "it has no token");
    assert!(!locks.revoke_by_force("k", token).await.unwrap(), "it has no token");
    assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
    assert!(locks.revoke_by_force("k", None).await.unwrap());
    drop(held);
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    assert!(!locks.revoke_by_force("other", None).await.unwrap() && other.is_valid());
    // Several sessions share a lock.
    let mut sharing = [foreign(&server).await, foreign(&server).await];
    let number = PgAdvisoryLock::new("k").key().as_bigint().unwrap();
    for connection in &mut sharing {
        let text = format!("SELECT pg_advisory_lock_shared({number})");
        sqlx::query(sqlx::AssertSqlSafe(text)).execute(connection).await.unwrap();
    }
    assert_eq!(locks.inspect("k").await.unwrap().holders.len(), 2);
    let shared = locks.scan("k").next().await.unwrap().unwrap();
    assert_eq!(shared.holders.len(), 2);
    other.release().await.unwrap();
}

/// More locks than the server can list without holding others up.
#[tokio::test]
async fn a_scan_of_more_locks_than_the_limit_says_so() {
    let server = PostgresServer::start(&["max_locks_per_transaction=200"]);
    let locks =
        LockManager::connect(&format!("{}&create_table=true", url(&server, "postgres"))).await.unwrap();
    let ours = locks.lock("k").acquire().await.unwrap();
    let mut connection = foreign(&server).await;
    let mut take = async |locks: std::ops::RangeInclusive<u32>| {
        let (first, last) = (locks.start(), locks.end());
        let text = format!("SELECT count(pg_advisory_lock(n)) FROM generate_series({first}, {last}) n");
        sqlx::query(sqlx::AssertSqlSafe(text)).execute(&mut connection).await.unwrap();
    };
    // The session of `ours` has the lock and its mark.
    take(1..=9_998).await;
    assert_eq!(locks.scan("").next().await.unwrap().unwrap().key.as_str(), "k");
    take(9_999..=9_999).await;
    let error = locks.scan("").next().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unsupported);
    assert!(error.to_string().contains("10001") && error.to_string().contains("10000"), "{error}");
    assert!(locks.inspect("k").await.unwrap().is_held());
    ours.release().await.unwrap();
}

#[tokio::test]
async fn force_needs_a_right_and_ends_every_lock_of_the_session() {
    let server = with_users(&["holder", "operator"]);
    let (locks, operator) = (client(&server, "holder").await, client(&server, "operator").await);
    let guard = locks.lock("k").label("job").acquire().await.unwrap();
    let other = locks.lock("other").acquire().await.unwrap();
    // Everything else needs the rights on the table alone.
    let state = operator.inspect("k").await.unwrap();
    let (holder, token) = (&state.holders[0], guard.fencing_token());
    assert_eq!((holder.label(), holder.token()), (Some("job"), Some(token)), "{state:?}");
    assert_eq!(operator.scan("k").next().await.unwrap().unwrap().holders, state.holders);
    let error = operator.revoke_by_force("k", token).await.unwrap_err();
    assert!(error.is_permanent() && error.kind() == LockErrorKind::Backend, "{error}");
    let text = error.to_string();
    let (_, grant) = text.split_once("superusers: ").expect("the statement to run");
    assert!(guard.is_valid() && other.is_valid());
    assert!(operator.revoke("other", other.fencing_token()).await.unwrap());
    tokio::time::timeout(Duration::from_secs(5), other.lost()).await.expect("told");
    drop(other);
    let other = locks.lock("other").wait(5000 * MS).acquire().await.unwrap();
    server.query(grant);
    assert!(operator.revoke_by_force("k", token).await.unwrap());
    for guard in [guard, other] {
        tokio::time::timeout(Duration::from_secs(5), guard.lost()).await.expect("the session has ended");
    }
    assert!(!operator.revoke_by_force("k", token).await.unwrap());
    operator.lock("k").acquire().await.unwrap().release().await.unwrap();
    // The session of a superuser.
    let locks = client(&server, "postgres").await;
    let guard = locks.lock("k").acquire().await.unwrap();
    let error = operator.revoke_by_force("k", guard.fencing_token()).await.unwrap_err();
    assert!(error.is_permanent() && guard.is_valid(), "{error}");
    guard.release().await.unwrap();
}

/// A request of the revoking client that the server executes only after the next grant.
#[tokio::test]
async fn a_late_revocation_spares_the_next_grant_of_the_same_session() {
    let server = with_users(&[]);
    let (locks, operator) = (client(&server, "postgres").await, client(&server, "postgres").await);
    let first = locks.lock("k").acquire().await.unwrap();
    let token = first.fencing_token();
    let mut session = server.session();
    session.query("BEGIN; LOCK TABLE distributed_locks").unwrap();
    let revoking = tokio::spawn(async move { operator.revoke("k", token).await });
    tokio::time::sleep(100 * MS).await;
    first.release().await.unwrap();
    session.query("ROLLBACK").unwrap();
    let next = locks.lock("k").acquire().await.unwrap();
    // It may have failed, because it has waited too long.
    let _ = revoking.await.unwrap();
    tokio::time::sleep(1200 * MS).await;
    assert!(next.is_valid() && !locks.inspect("k").await.unwrap().holders[0].is_revoked());
    next.release().await.unwrap();
}

/// The holder is notified although its row cannot be read for a while.
#[tokio::test]
async fn a_session_outlives_a_table_that_is_locked_while_it_looks() {
    let server = with_users(&[]);
    let locks = client(&server, "postgres").await;
    let guard = locks.lock("k").acquire().await.unwrap();
    let mut session = server.session();
    session.query("BEGIN; LOCK TABLE distributed_locks").unwrap();
    tokio::time::sleep(2500 * MS).await;
    assert!(guard.is_valid());
    session.query("ROLLBACK").unwrap();
    assert!(locks.revoke("k", guard.fencing_token()).await.unwrap());
    until("it is notified", || if guard.is_valid() { Err("valid") } else { Ok(()) }).await;
}

/// The announcement is a statement of its own, and another transaction has locked its row.
#[tokio::test]
async fn a_revocation_that_cannot_be_announced_reaches_its_holder_all_the_same() {
    let server = with_users(&[]);
    let (locks, operator) = (client(&server, "postgres").await, client(&server, "postgres").await);
    let first = locks.lock("first").acquire().await.unwrap();
    assert!(operator.revoke("first", first.fencing_token()).await.unwrap());
    tokio::time::timeout(MS * 10_000, first.lost()).await.expect("announced");
    let guard = locks.lock("k").acquire().await.unwrap();
    let mut other = foreign(&server).await;
    let row = r"SELECT FROM distributed_locks WHERE name = E'\trevocations' FOR UPDATE";
    other.execute("BEGIN").await.unwrap();
    other.execute(row).await.unwrap();
    assert!(operator.revoke("k", guard.fencing_token()).await.unwrap());
    tokio::time::timeout(MS * 15_000, guard.lost()).await.expect("the session looks now and then");
    other.execute("ROLLBACK").await.unwrap();
}

/// The row states when the lock was acquired, and the lock may be held for days.
#[tokio::test]
async fn the_row_of_a_lock_that_is_held_for_long_stays() {
    let server = with_users(&[]);
    let locks = client(&server, "postgres").await;
    let guard = locks.lock("held").acquire().await.unwrap();
    locks.lock("unused").acquire().await.unwrap().release().await.unwrap();
    let rows = r"name IN (E'advisory\theld', E'advisory\tunused')";
    server.query(&format!(
        "UPDATE distributed_locks SET expires_at = clock_timestamp() - interval '49 h' WHERE {rows}"
    ));
    let names = format!("SELECT coalesce(string_agg(name, ' '), '') FROM distributed_locks WHERE {rows}");
    let old = || server.value(&names).unwrap_or_default();
    assert!(old().contains("unused"));
    // Rows are removed after a number of new ones.
    for number in 0..2_000 {
        locks.lock(number.to_string()).acquire().await.unwrap().release().await.unwrap();
        if number % 50 == 0 && !old().contains("unused") {
            break;
        }
    }
    until("the unused row is removed", || if old().contains("unused") { Err(old()) } else { Ok(()) }).await;
    assert!(old().contains("held"), "{}", old());
    assert!(locks.revoke("held", guard.fencing_token()).await.unwrap());
}
