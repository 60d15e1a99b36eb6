//! The order of a lock and a transaction.

use lock_runtime::LockErrorKind;
use sqlx::{Executor, PgPool, Postgres, Transaction};

use super::{LONG, MS, client, pool};
use crate::support::postgres_server::PostgresServer;

fn account() -> PostgresServer {
    let server = PostgresServer::start(&[]);
    server.query("CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL); INSERT INTO account VALUES (1, 100)");
    server
}

async fn begin(pool: &PgPool) -> Transaction<'static, Postgres> {
    let mut transaction = pool.begin().await.unwrap();
    transaction.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    transaction
}

async fn balance(transaction: &mut Transaction<'static, Postgres>) -> i32 {
    sqlx::query_scalar("SELECT balance FROM account WHERE id = 1")
        .fetch_one(&mut **transaction)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_snapshot_from_before_the_lock_does_not_show_what_its_last_holder_wrote() {
    let server = account();
    let (locks, pool) = (client(&server).await, pool(&server));

    let holder = locks.lock("account:1").acquire().await.unwrap();
    // Wrong: the snapshot is that of the first statement, and the lock comes afterwards.
    let mut early = begin(&pool).await;
    assert_eq!(balance(&mut early).await, 100);
    server.query("UPDATE account SET balance = 30 WHERE id = 1");
    holder.release().await.unwrap();
    let next = locks.lock("account:1").wait(LONG).acquire().await.unwrap();
    assert_eq!(balance(&mut early).await, 100, "stale, under a valid lock");
    let update =
        sqlx::query("UPDATE account SET balance = balance - 70 WHERE id = 1").execute(&mut *early).await;
    assert_eq!(update.unwrap_err().as_database_error().unwrap().code().as_deref(), Some("40001"));
    drop(early);

    // Right: first the lock, then the transaction.
    let mut late = begin(&pool).await;
    assert_eq!(balance(&mut late).await, 30);
    late.commit().await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_that_is_waited_for_inside_of_a_transaction_may_wait_for_that_transaction() {
    let server = account();
    let (locks, pool) = (client(&server).await, pool(&server));
    let row = "SELECT balance FROM account WHERE id = 1 FOR UPDATE";

    // One task has the row and waits for the lock, the other one has the lock and waits for the row.
    let mut transaction = pool.begin().await.unwrap();
    transaction.execute(row).await.unwrap();
    let holder = locks.lock("account:1").acquire().await.unwrap();
    let waits_for_row = tokio::spawn(async move {
        pool.execute(row).await.unwrap();
        holder.release().await.unwrap();
    });
    let error = locks.lock("account:1").wait(500 * MS).acquire().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    assert!(!waits_for_row.is_finished(), "the database does not see the deadlock");
    // With the error, the transaction ends, and the other one goes on.
    transaction.rollback().await.unwrap();
    tokio::time::timeout(LONG, waits_for_row).await.unwrap().unwrap();
}
