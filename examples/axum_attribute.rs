//! One request per account at a time, by an attribute on the handler:
//! `cargo run --features json --example axum_attribute`, or with `LOCK_URL=redis://127.0.0.1:6379` and `PORT=3001` as
//! often as you like, for several processes on one lock.
//!
//! The layer (see `axum_layer`) takes the key from the request's head, before its body is read. The attribute takes
//! it from the handler's arguments, whichever part of the request they come from.
//!
//! ```text
//! # Two transfers at once that have an account in common: the second waits for the first, 2 s, and is served after it.
//! curl localhost:3000/transfer --json '{"from": 1, "to": 2, "amount": 10}' &
//! curl localhost:3000/transfer --json '{"from": 2, "to": 3, "amount": 10}'; wait
//!
//! # Three at once: the third has waited for 3 s and is refused.
//! for i in 1 2 3; do curl -i localhost:3000/transfer --json '{"from": 1, "to": 2, "amount": 10}' & done; wait
//!
//! HTTP/1.1 409 Conflict
//! content-type: application/problem+json
//! retry-after: 1
//! {"type":"https://docs.rs/lock-tower/#contended","title":"Another request holds the lock","status":409}
//!
//! # The application's own errors stay what they are: 402.
//! curl -i localhost:3000/transfer --json '{"from": 1, "to": 2, "amount": 1000}'
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
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use lock_runtime::{LockError, LockManager, distributed_lock};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

#[derive(Clone)]
struct App {
    locks: LockManager,
    /// Stands in for a database.
    accounts: Arc<Mutex<HashMap<u64, i64>>>,
}

#[derive(Deserialize)]
struct Order {
    from: u64,
    to: u64,
    amount: i64,
}

#[derive(Serialize)]
struct Receipt {
    left: i64,
}

enum BankError {
    /// The lock was not acquired, or was lost.
    Lock(LockError),
    Poor,
    Same,
}

/// Required of the handler's error by the attribute.
impl From<LockError> for BankError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl IntoResponse for BankError {
    fn into_response(self) -> Response {
        match self {
            // 409, 503 or another status, as the layer answers.
            Self::Lock(error) => error.into_response(),
            Self::Poor => (StatusCode::PAYMENT_REQUIRED, "insufficient funds\n").into_response(),
            Self::Same => (StatusCode::UNPROCESSABLE_ENTITY, "two accounts, please\n").into_response(),
        }
    }
}

/// Both accounts are held, whichever way the money goes. The key parts come from the request's body, through the
/// pattern that destructures it.
#[distributed_lock(keys = ["account:<from>", "account:<to>"], manager = app.locks, wait = "3s")]
async fn transfer(
    State(app): State<App>,
    Json(Order { from, to, amount }): Json<Order>,
) -> Result<Json<Receipt>, BankError> {
    if from == to {
        return Err(BankError::Same);
    }
    let balance = |id| *app.accounts.lock().unwrap_or_else(PoisonError::into_inner).get(&id).unwrap_or(&100);
    let (left, received) = (balance(from) - amount, balance(to) + amount);
    if left < 0 {
        return Err(BankError::Poor);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    app.accounts.lock().unwrap_or_else(PoisonError::into_inner).extend([(from, left), (to, received)]);
    Ok(Json(Receipt { left }))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = LockManager::connect(&env::var("LOCK_URL").unwrap_or_else(|_| "memory:".into())).await?;
    let port = env::var("PORT").map_or(Ok(3000), |port| port.parse())?;
    let state = App { locks: locks.clone(), accounts: Arc::default() };
    let app = Router::new().route("/transfer", post(transfer)).with_state(state);
    axum::serve(TcpListener::bind(("127.0.0.1", port)).await?, app)
        .with_graceful_shutdown(signals::stop())
        .await?;
    // Background releases need this process a moment longer.
    locks.shutdown().await;
    Ok(())
}
