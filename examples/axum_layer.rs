//! One request per account at a time, by a layer on the route: `cargo run --example axum_layer`, or
//! with `LOCK_URL=redis://127.0.0.1:6379` and `PORT=3001` as often as you like, for several processes on one lock.
//!
//! ```text
//! # Two at once on one account: one is done after 3 s, the other refused at once.
//! curl -i -X POST localhost:3000/accounts/42/withdraw & curl -i -X POST localhost:3000/accounts/42/withdraw; wait
//!
//! HTTP/1.1 409 Conflict
//! content-type: application/problem+json
//! retry-after: 1
//! {"type":"https://docs.rs/lock-tower/#contended","title":"Another request holds the lock","status":409}
//!
//! # `042` is the same account. Another one, `43`, is free.
//! curl -X POST localhost:3000/accounts/42/withdraw & curl -i -X POST localhost:3000/accounts/042/withdraw; wait
//!
//! # A client that disconnects frees the account: the second request is served.
//! curl -m 1 -X POST localhost:3000/accounts/42/withdraw; curl -X POST localhost:3000/accounts/42/withdraw
//!
//! # A path that names no account is refused before any lock is taken.
//! curl -i -X POST localhost:3000/accounts/everybody/withdraw
//! ```
//!
//! Ctrl-C or SIGTERM lets pending requests finish, and leaves no lock behind.

#[path = "support/signals.rs"]
mod signals;

use std::{
    collections::HashMap,
    env,
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::{Path, State},
    routing::{get, post},
};
use lock_runtime::LockManager;
use lock_tower::{HeldLock, LockLayer};
use tokio::net::TcpListener;

/// Stands in for a database.
#[derive(Clone, Default)]
struct Accounts(Arc<Mutex<HashMap<u64, i64>>>);

impl Accounts {
    fn read(&self, id: u64) -> i64 {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).unwrap_or(&100)
    }

    fn write(&self, id: u64, balance: i64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, balance);
    }
}

async fn balance(Path(id): Path<u64>, State(accounts): State<Accounts>) -> String {
    format!("{}\n", accounts.read(id))
}

/// Reads, thinks, writes: two of them at once would lose a withdrawal.
async fn withdraw(Path(id): Path<u64>, State(accounts): State<Accounts>, lock: HeldLock) -> String {
    let balance = accounts.read(id) - 10;
    tokio::time::sleep(Duration::from_secs(3)).await;
    accounts.write(id, balance);
    format!("{balance} left, withdrawn under fencing token {}\n", lock.fencing_token())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = LockManager::connect(&env::var("LOCK_URL").unwrap_or_else(|_| "memory:".into())).await?;
    let port = env::var("PORT").map_or(Ok(3000), |port| port.parse())?;
    let lock = LockLayer::new(locks.clone(), "account:<id:u64>")?;
    let app = Router::new()
        .route("/accounts/{id}", get(balance))
        .route("/accounts/{id}/withdraw", post(withdraw).route_layer(lock))
        .with_state(Accounts::default());
    axum::serve(TcpListener::bind(("127.0.0.1", port)).await?, app)
        .with_graceful_shutdown(signals::stop())
        .await?;
    // Background releases need this process a moment longer.
    locks.shutdown().await;
    Ok(())
}
