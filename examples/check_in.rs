//! A write that commits only under its lock, however long its process was paused before: the transaction checks in.
//! `LOCK_URL=postgres://postgres@127.0.0.1/postgres cargo run --example check_in --features postgres`. It takes two
//! seconds, and makes the tables `distributed_locks` and `example_reports`.

use std::{env, time::Duration};

use lock_runtime::{
    FencingToken, LockErrorKind, LockManager,
    backend::{Postgres, postgres::fence::CheckIn},
};
use sqlx::PgPool;
use tokio::time::sleep;

const HOLDERS: u32 = 40;
const TTL: Duration = Duration::from_millis(500);

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What became of a holder's write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    InTime,
    /// It replaced what a later holder had written.
    Late,
    Refused,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = env::var("LOCK_URL").map_err(|_| "set LOCK_URL to the URL of a PostgreSQL server")?;
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(8).connect(&url).await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS example_reports (name text PRIMARY KEY, token bigint NOT NULL)")
        .execute(&pool)
        .await?;
    sqlx::raw_sql(lock_runtime::backend::postgres::TABLE).execute(&pool).await?;
    let locks = LockManager::new(Postgres::from_pool(pool.clone()));

    for checks_in in [false, true] {
        let holders: Vec<_> = (0..HOLDERS)
            .map(|number| tokio::spawn(write_after_a_pause(locks.clone(), pool.clone(), number, checks_in)))
            .collect();
        let mut seen = Vec::new();
        for holder in holders {
            seen.push(holder.await??);
        }
        let count = |what| seen.iter().filter(|write| **write == what).count();
        println!(
            "{}: {} of {HOLDERS} wrote in time, {} late, {} were refused",
            if checks_in { "with a check-in" } else { "with a look at the guard alone" },
            count(Write::InTime),
            count(Write::Late),
            count(Write::Refused),
        );
        assert!(!checks_in || count(Write::Late) == 0, "a late write was committed");
    }
    locks.shutdown().await;
    Ok(())
}

/// Takes a lock, looks at the guard, stands still for a while, and writes.
async fn write_after_a_pause(
    locks: LockManager,
    pool: PgPool,
    number: u32,
    checks_in: bool,
) -> Result<Write, Error> {
    let name = format!("report:{number}");
    // Without renewal, as if the whole process stood still.
    let lock = locks.lock(&name).ttl(TTL);
    let guard = lock.clone().auto_renew(false).acquire().await?;
    let next = tokio::spawn({
        let (pool, name) = (pool.clone(), name.clone());
        async move {
            let guard = lock.wait(TTL * 4).acquire().await?;
            let mut connection = pool.acquire().await?;
            write(&mut connection, &name, guard.fencing_token()).await?;
            // The release needs one as well: if every holder kept one for itself, none would be left.
            drop(connection);
            guard.release().await?;
            Ok::<_, Error>(())
        }
    });
    guard.ensure_valid()?;
    // From 0 to twice the ttl.
    sleep(TTL * 2 * number / HOLDERS).await;

    // First the lock, then the transaction, which is committed before the release.
    let mut transaction = pool.begin().await?;
    let held = if checks_in { guard.check_in(&mut transaction).await } else { Ok(()) };
    let outcome = match held {
        Ok(()) => {
            let late = write(&mut transaction, &name, guard.fencing_token()).await?;
            transaction.commit().await?;
            if late { Write::Late } else { Write::InTime }
        }
        Err(error) if error.kind() == LockErrorKind::Lost => {
            transaction.rollback().await?;
            Write::Refused
        }
        Err(error) => return Err(error.into()),
    };
    drop(guard);
    next.await??;
    Ok(outcome)
}

/// Returns whether a later holder had written.
async fn write(connection: &mut sqlx::PgConnection, name: &str, token: FencingToken) -> Result<bool, Error> {
    let before: Option<i64> =
        sqlx::query_scalar("SELECT token FROM example_reports WHERE name = $1 FOR UPDATE")
            .bind(name)
            .fetch_optional(&mut *connection)
            .await?;
    sqlx::query(
        "INSERT INTO example_reports VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET token = excluded.token",
    )
    .bind(name)
    .bind(token)
    .execute(connection)
    .await?;
    Ok(before.is_some_and(|before| before > i64::from(token)))
}
