//! Tests of one PostgreSQL server that are not cases of the conformance suite.

mod advisory;
mod backends;
mod check_in;
mod credentials;
mod failover;
mod names;
mod next;
mod operate;
mod operate_advisory;
mod order;
mod own_pool;
mod pooler;
mod reader;
mod refused;
mod refused_rows;
mod second_table;
mod table;
mod urls;
mod waiting;

use std::time::Duration;

use lock_runtime::LockManager;
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::support::postgres_server::PostgresServer;

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(20);

/// With these settings in addition, each after an `&`.
fn url(server: &PostgresServer, rest: &str) -> String {
    format!("postgres:///postgres?host={}&user=postgres{rest}", server.folder().display())
}

async fn client(server: &PostgresServer) -> LockManager {
    LockManager::connect(&url(server, "&create_table=true")).await.unwrap()
}

/// A pool of the user.
fn pool(server: &PostgresServer) -> PgPool {
    let options = PgConnectOptions::new().socket(server.folder()).username("postgres").database("postgres");
    PgPoolOptions::new().max_connections(60).connect_lazy_with(options)
}
