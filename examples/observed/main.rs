//! Metrics of locks for Prometheus: `cargo run --example observed --features inspect,metrics`, with
//! `LOCK_URL=redis://127.0.0.1:6379` for locks that several processes share.
//!
//! ```text
//! # Two at once on one account: the second waits for the first.
//! curl -X POST localhost:3000/accounts/42/withdraw & curl -X POST localhost:3000/accounts/42/withdraw; wait
//!
//! # How long the acquisitions took, who waits, what is held.
//! curl localhost:3000/metrics
//!
//! lock_waiters{store="memory",class="account:<id:u64>"} 0
//! lock_acquire_duration_seconds_count{store="memory",class="account:<id:u64>",mode="exclusive",outcome="acquired"} 2
//! …
//!
//! # Whether the store answers, for the readiness probe.
//! curl -i localhost:3000/ready
//!
//! # Who holds what, and who waits; also for a browser.
//! curl localhost:3000/locks/locks/account:42
//! ```
//!
//! `alerts.yml` has three alerts for Prometheus, and `dashboard.json` a dashboard for Grafana. The metrics and the page
//! `/locks` are for the inside of a network: serve them on a port of their own in production.

#[path = "../support/signals.rs"]
mod signals;

use std::{env, error::Error, time::Duration};

use axum::{
    Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use lock_runtime::{LockManager, backend::ServerStatus, metrics::BUCKETS};
use lock_tower::{HeldLock, LockLayer, inspect_router};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;

async fn withdraw(lock: HeldLock) -> String {
    tokio::time::sleep(Duration::from_secs(1)).await;
    format!("withdrawn under fencing token {}\n", lock.fencing_token())
}

async fn metrics(State(recorder): State<PrometheusHandle>) -> String {
    recorder.run_upkeep();
    recorder.render()
}

/// Asks the store only if it is unknown whether the store can be reached.
async fn ready(State(locks): State<LockManager>) -> (StatusCode, String) {
    let status = locks.status();
    let is_recent = |age: Duration| age < Duration::from_secs(5);
    let answered = |server: &ServerStatus| server.last_answer_age().is_some_and(is_recent);
    if status.is_reachable() && status.servers.iter().any(answered) {
        return (StatusCode::OK, "the store has answered within the last 5 s\n".into());
    }
    match tokio::time::timeout(Duration::from_secs(1), locks.ping()).await {
        Ok(Ok(())) => (StatusCode::OK, "the store answers\n".into()),
        Ok(Err(error)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer within 1 s\n".into()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Before the first lock, because what happened before is not recorded.
    let recorder = PrometheusBuilder::new().set_buckets(&BUCKETS)?.install_recorder()?;
    let locks = LockManager::connect(&env::var("LOCK_URL").unwrap_or_else(|_| "memory:".into())).await?;
    let port = env::var("PORT").map_or(Ok(3000), |port| port.parse())?;
    let lock = LockLayer::new(locks.clone(), "account:<id:u64>")?.wait(Duration::from_secs(5));
    let app = Router::new()
        .route("/accounts/{id}/withdraw", post(withdraw).route_layer(lock))
        .route("/ready", get(ready).with_state(locks.clone()))
        .nest("/locks", inspect_router(locks.clone()))
        .route("/metrics", get(metrics).with_state(recorder));
    axum::serve(TcpListener::bind(("127.0.0.1", port)).await?, app)
        .with_graceful_shutdown(signals::stop())
        .await?;
    locks.shutdown().await;
    Ok(())
}
