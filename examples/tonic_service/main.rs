//! A gRPC service with both: the layer for keys in the metadata, the attribute for keys in a message.
//! `cargo run --features tonic --example tonic_service`, or with `LOCK_URL=redis://127.0.0.1:6379` and `PORT=50052` as
//! often as you like, for several processes on one lock.
//!
//! ```text
//! call() { grpcurl -plaintext -import-path examples/tonic_service -proto bank.proto "$@"; }
//!
//! # Two at once on one account: one is done after 3 s, the other refused at once.
//! call -H 'x-account: 42' -d '{"amount": 10}' localhost:50051 demo.Bank/Withdraw &
//! call -H 'x-account: 42' -d '{"amount": 10}' localhost:50051 demo.Bank/Withdraw; wait
//!
//! ERROR:
//!   Code: Aborted
//!   Message: Another request holds the lock
//!   Details:
//!   1)  {"@type": "type.googleapis.com/google.rpc.RetryInfo", …}
//!
//! # `Close` has the account in its message. It waits for its turn, 5 s at most.
//! call -H 'x-account: 42' -d '{"amount": 10}' localhost:50051 demo.Bank/Withdraw &
//! sleep 1; call -d '{"id": 42}' localhost:50051 demo.Bank/Close; wait
//!
//! # A client that disconnects frees the account: `Close` takes 1 s, and does not wait for the 3 s.
//! call -max-time 1 -H 'x-account: 42' -d '{"amount": 10}' localhost:50051 demo.Bank/Withdraw
//! call -d '{"id": 42}' localhost:50051 demo.Bank/Close
//!
//! # A request that names no account is refused: InvalidArgument.
//! call -d '{"amount": 10}' localhost:50051 demo.Bank/Withdraw
//! ```

mod rpc;
#[path = "../support/signals.rs"]
mod signals;

use std::{
    collections::HashMap,
    env,
    error::Error,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use http::request::Parts;
use lock_runtime::{HeldLock, LockKey, LockManager, distributed_lock, lock_key};
use lock_tower::{KeyRejection, LockLayer};
use rpc::{Account, Balance, BankServer, Withdrawal};
use tonic::{Request, Response, Status, service::LayerExt, transport::Server};

struct Bank {
    locks: LockManager,
    /// Stands for a database.
    accounts: Mutex<HashMap<u64, i64>>,
}

impl Bank {
    fn read(&self, id: u64) -> i64 {
        *self.accounts.lock().unwrap_or_else(PoisonError::into_inner).get(&id).unwrap_or(&100)
    }

    fn write(&self, id: u64, balance: i64) {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner).insert(id, balance);
    }

    /// A gRPC method takes a `Request`, whose message has no name that a key could use; so the attribute is on a
    /// method that takes the message. A lock that is not acquired, or is lost, becomes a `Status` automatically.
    #[distributed_lock(key = "account:<account.id>", manager = self.locks, wait = "5s")]
    async fn close_account(&self, account: Account) -> Result<Balance, Status> {
        let left = self.read(account.id);
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.write(account.id, 0);
        Ok(Balance { left, token: 0 })
    }
}

#[tonic::async_trait]
impl rpc::Bank for Bank {
    /// Under the lock of the layer.
    async fn withdraw(&self, request: Request<Withdrawal>) -> Result<Response<Balance>, Status> {
        let lock = request.extensions().get::<HeldLock>().ok_or_else(|| Status::internal("not locked"))?;
        let token = lock.fencing_token().get();
        let id = request.metadata().get("x-account").and_then(|id| id.to_str().ok()?.parse().ok());
        let id = id.ok_or_else(|| Status::invalid_argument("no account"))?;
        let left = self.read(id) - request.get_ref().amount;
        tokio::time::sleep(Duration::from_secs(3)).await;
        self.write(id, left);
        Ok(Response::new(Balance { left, token }))
    }

    async fn close(&self, request: Request<Account>) -> Result<Response<Balance>, Status> {
        Ok(Response::new(self.close_account(request.into_inner()).await?))
    }
}

/// The layer runs for each method of the service; `Close` finds its key itself. If all were locked alike, the
/// template `account:<header.x-account:u64>` would do the same.
fn account(parts: &mut Parts) -> Result<Option<LockKey>, KeyRejection> {
    if parts.uri.path() != "/demo.Bank/Withdraw" {
        return Ok(None);
    }
    let account = parts.headers.get("x-account").and_then(|id| id.to_str().ok()?.parse::<u64>().ok());
    let account = account.ok_or_else(|| KeyRejection::bad_request("`x-account` must be a number"))?;
    Ok(Some(lock_key!("account:<account>")?))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = LockManager::connect(&env::var("LOCK_URL").unwrap_or_else(|_| "memory:".into())).await?;
    let port = env::var("PORT").map_or(Ok(50051), |port| port.parse())?;
    let bank = Bank { locks: locks.clone(), accounts: Mutex::default() };
    let bank = LockLayer::with_key(locks.clone(), account).named_layer(BankServer::new(bank));
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    Server::builder().add_service(bank).serve_with_shutdown(address, signals::stop()).await?;
    // Background releases need this process a moment longer.
    locks.shutdown().await;
    Ok(())
}
