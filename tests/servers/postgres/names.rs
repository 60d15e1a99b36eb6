//! The names of connections.

use std::path::Path;

use lock_runtime::{LockManager, backend::Postgres, backend::postgres::TABLE};
use sqlx::postgres::PgPoolOptions;

use super::{LONG, MS, pool};
use crate::{
    client_name,
    support::{pgbouncer::PgBouncer, postgres_server::PostgresServer},
};

const SCHEMES: [&str; 2] = ["postgres", "postgres+advisory"];

/// The condition on a row of `pg_stat_activity` that its session belongs to this process's stores.
pub(super) fn is_ours() -> String {
    format!("application_name LIKE '%:{}@%'", std::process::id())
}

fn url(scheme: &str, folder: &Path, rest: &str) -> String {
    format!("{scheme}:///postgres?host={}&user=postgres{rest}", folder.display())
}

/// The names of all sessions except the test's own.
fn names(server: &PostgresServer) -> Vec<String> {
    let names = "SELECT application_name FROM pg_stat_activity \
                 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    server.query(names).into_iter().flatten().flatten().collect()
}

/// Makes connections for all purposes: one client holds a lock for which the other client waits.
async fn contend(ours: &LockManager, theirs: &LockManager) {
    let guard = ours.lock("k").acquire().await.unwrap();
    let lock = theirs.lock("k").wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    tokio::time::sleep(500 * MS).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
}

async fn contend_by_url(url: &str) -> [LockManager; 2] {
    let clients = [LockManager::connect(url).await.unwrap(), LockManager::connect(url).await.unwrap()];
    contend(&clients[0], &clients[1]).await;
    clients
}

#[tokio::test]
async fn each_connection_has_program_process_and_host_in_its_name() {
    for scheme in SCHEMES {
        let server = PostgresServer::start(&[]);
        server.query(TABLE);
        let _clients = contend_by_url(&url(scheme, server.folder(), "")).await;
        let names = names(&server);
        assert!(names.len() >= 2 && names.iter().all(|name| client_name::is_ours(name)), "{names:?}");
    }
}

#[tokio::test]
async fn a_pooler_passes_the_name_on() {
    for mode in ["transaction", "session"] {
        let server = PostgresServer::start(&[]);
        server.query(TABLE);
        let bouncer = PgBouncer::start(&server, mode);
        let _clients = contend_by_url(&url("postgres", bouncer.folder(), "")).await;
        // A session has no name until the pooler has lent it to a client.
        let names = names(&server);
        let (given, others): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|name| client_name::is_ours(name));
        assert!(!given.is_empty() && others.iter().all(String::is_empty), "{given:?} {others:?}");
    }
}

#[tokio::test]
async fn a_name_in_the_url_or_in_the_user_s_pool_is_kept() {
    for scheme in SCHEMES {
        let server = PostgresServer::start(&[]);
        server.query(TABLE);
        let _clients = contend_by_url(&url(scheme, server.folder(), "&application_name=my%20own")).await;
        let names = names(&server);
        assert!(names.len() >= 2 && names.iter().all(|name| name == "my own"), "{scheme}: {names:?}");
    }
    let server = PostgresServer::start(&[]);
    server.query(TABLE);
    let options = pool(&server).connect_options().as_ref().clone().application_name("pool");
    let pool = PgPoolOptions::new().connect_lazy_with(options);
    let clients = [(); 2].map(|()| LockManager::new(Postgres::from_pool(pool.clone())));
    contend(&clients[0], &clients[1]).await;
    let names = names(&server);
    assert!(names.len() >= 2 && names.iter().all(|name| name == "pool"), "{names:?}");
}
