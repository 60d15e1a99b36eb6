//! A store on the user's own pool: its leases are renewed as the pool would do it now.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use lock_runtime::{LockErrorKind, LockGuard, LockManager, backend::Postgres, backend::postgres::TABLE};
use sqlx::{
    Executor, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use super::{LONG, MS, pool};
use crate::support::postgres_server::{PostgresServer, USER};

const TTL: Duration = Duration::from_secs(3);

/// A pool whose nth connection has this `search_path`.
fn pool_with_paths(
    server: &PostgresServer,
    path_of: impl Fn(u32) -> &'static str + Send + Sync + 'static,
) -> PgPool {
    let (made, path_of) = (Arc::new(AtomicU32::new(0)), Arc::new(path_of));
    PgPoolOptions::new()
        .max_connections(1)
        .after_connect(move |connection, _| {
            let path = path_of(made.fetch_add(1, Ordering::SeqCst));
            Box::pin(async move { connection.execute(path).await.map(drop) })
        })
        .connect_lazy_with(pool(server).connect_options().as_ref().clone())
}

/// A server with a table in each of these schemas, and none elsewhere.
fn server_with_schemas(schemas: &[&str]) -> PostgresServer {
    let server = PostgresServer::start(&[]);
    for schema in schemas {
        server.query(&format!(
            "CREATE SCHEMA {schema}; SET search_path TO {schema}; {TABLE}; RESET search_path"
        ));
    }
    server
}

/// Keeps the lock for three leases.
async fn is_kept(guard: LockGuard) {
    let began = Instant::now();
    while began.elapsed() < 3 * TTL {
        assert!(guard.is_valid(), "lost after {:?}", began.elapsed());
        tokio::time::sleep(10 * MS).await;
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn leases_are_renewed_in_sessions_that_the_pool_s_hook_has_prepared() {
    let server = server_with_schemas(&["tenant"]);
    let pool = pool_with_paths(&server, |_| "SET search_path TO tenant");
    let locks = LockManager::new(Postgres::from_pool(pool)).ttl(TTL);
    is_kept(locks.lock("k").acquire().await.unwrap()).await;
}

#[tokio::test]
async fn leases_are_renewed_with_the_options_that_the_pool_has_now() {
    let server = PostgresServer::start(&[]);
    server.query(TABLE);
    server.query(&format!("GRANT ALL ON ALL TABLES IN SCHEMA public TO {USER}"));
    let with_password = |password: &str| {
        server.query(&format!("ALTER ROLE {USER} PASSWORD '{password}'"));
        PgConnectOptions::new().socket(server.folder()).username(USER).password(password).database("postgres")
    };
    let pool = PgPoolOptions::new().connect_lazy_with(with_password("first"));
    let locks = LockManager::new(Postgres::from_pool(pool.clone())).ttl(TTL);
    let held = locks.lock("held").acquire().await.unwrap();
    pool.set_connect_options(with_password("second"));
    server.terminate_clients();
    let guard = locks.lock("k").wait(LONG).acquire().await.unwrap();
    is_kept(held).await;
    is_kept(guard).await;
}

#[tokio::test]
async fn a_pool_that_leads_to_another_table_than_renewals_is_refused_until_it_does_not() {
    let server = server_with_schemas(&["one", "two"]);
    let pool = pool_with_paths(&server, |connection| match connection {
        0 => "SET search_path TO one",
        _ => "SET search_path TO two",
    });
    let locks = LockManager::new(Postgres::from_pool(pool.clone())).ttl(TTL);
    let error = locks.lock("k").wait(LONG).acquire().await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("two tables"), "{error}");
    // The pool's next connection is like those for renewals.
    pool.acquire().await.unwrap().detach();
    is_kept(locks.lock("k").acquire().await.unwrap()).await;
}

#[tokio::test]
async fn pools_whose_sessions_find_different_tables_are_different_stores() {
    let server = server_with_schemas(&["one", "two"]);
    let [one, two, other] = ["SET search_path TO one", "SET search_path TO two", "SET search_path TO two"]
        .map(|path| LockManager::new(Postgres::from_pool(pool_with_paths(&server, move |_| path))).ttl(LONG));
    two.ping().await.unwrap();
    let section = async {
        let inner = two.lock("k").reentrant(true).acquire().await.unwrap();
        assert!(
            other.lock("k").try_acquire().await.unwrap().is_none(),
            "re-entered, and taken from no table"
        );
        inner.release().await.unwrap();
    };
    one.lock("k").acquire().await.unwrap().run(section).await.unwrap();
}

#[tokio::test]
async fn connections_for_renewals_without_the_table_or_its_rights_are_refused_at_the_first_acquisition() {
    let server = server_with_schemas(&["one"]);
    server.query(&format!(
        "GRANT USAGE ON SCHEMA one TO {USER}; GRANT SELECT ON one.distributed_locks TO {USER}"
    ));
    for (later, word) in [
        ("SET search_path TO nowhere", "does not exist"),
        ("SET search_path TO one; SET ROLE locks", "GRANT SELECT"),
        ("SELECT 1 / 0", "`after_connect` did not succeed"),
    ] {
        let pool = pool_with_paths(&server, move |connection| match connection {
            0 => "SET search_path TO one",
            _ => later,
        });
        let locks = LockManager::new(Postgres::from_pool(pool)).ttl(TTL);
        let error = locks.lock("k").wait(3000 * MS).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        let text = error.to_string();
        assert!(text.contains("could not be renewed") && text.contains(word), "{later}: {text}");
        // Without renewal, nothing is needed for it.
        locks.lock("k").auto_renew(false).acquire().await.unwrap().release().await.unwrap();
    }
}
