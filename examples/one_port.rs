//! HTTP and gRPC on one port, under the same locks, each answered in its own way:
//! `cargo run --features tonic --example one_port`.
//!
//! ```text
//! call() { grpcurl -plaintext -import-path examples/tonic_service -proto bank.proto "$@"; }
//!
//! # The account is locked by a request over HTTP; one over gRPC is refused with ABORTED.
//! curl -X POST localhost:3000/accounts/42/withdraw &
//! sleep 1; call -H 'x-account: 42' -d '{"amount": 10}' localhost:3000 demo.Bank/Withdraw; wait
//!
//! # And the other way round: 409.
//! call -H 'x-account: 42' -d '{"amount": 10}' localhost:3000 demo.Bank/Withdraw &
//! sleep 1; curl -i -X POST localhost:3000/accounts/42/withdraw; wait
//! ```

#[path = "tonic_service/rpc.rs"]
mod rpc;
#[path = "support/signals.rs"]
mod signals;

use std::{env, error::Error, time::Duration};

use axum::{Router, routing::post, serve::ListenerExt};
use lock_runtime::{HeldLock, LockManager};
use lock_tower::LockLayer;
use rpc::{Account, Balance, BankServer, Withdrawal};
use tokio::net::TcpListener;
use tonic::{
    Request, Response, Status,
    service::{LayerExt, Routes},
};

/// The work behind both protocols.
async fn withdraw(lock: &HeldLock) -> u64 {
    tokio::time::sleep(Duration::from_secs(3)).await;
    lock.fencing_token().get()
}

async fn over_http(lock: HeldLock) -> String {
    format!("withdrawn under fencing token {}\n", withdraw(&lock).await)
}

struct OverGrpc;

#[tonic::async_trait]
impl rpc::Bank for OverGrpc {
    async fn withdraw(&self, request: Request<Withdrawal>) -> Result<Response<Balance>, Status> {
        let lock = request.extensions().get::<HeldLock>().ok_or_else(|| Status::internal("not locked"))?;
        Ok(Response::new(Balance { left: 0, token: withdraw(lock).await }))
    }

    async fn close(&self, _: Request<Account>) -> Result<Response<Balance>, Status> {
        Err(Status::unimplemented("see the example `tonic_service`"))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = LockManager::connect(&env::var("LOCK_URL").unwrap_or_else(|_| "memory:".into())).await?;
    let port = env::var("PORT").map_or(Ok(3000), |port| port.parse())?;
    let by_route = LockLayer::new(locks.clone(), "account:<id:u64>")?;
    let by_metadata = LockLayer::new(locks.clone(), "account:<header.x-account:u64>")?;
    let grpc = Routes::new(by_metadata.named_layer(BankServer::new(OverGrpc)));
    let http = Router::new().route("/accounts/{id}/withdraw", post(over_http).route_layer(by_route));
    let app = grpc.into_axum_router().merge(http);
    // Trailers leave a little after the message; with Nagle's algorithm, 40 ms after it.
    let listener = TcpListener::bind(("127.0.0.1", port)).await?.tap_io(|connection| {
        let _ = connection.set_nodelay(true);
    });
    axum::serve(listener, app).with_graceful_shutdown(signals::stop()).await?;
    // Background releases need this process a moment longer.
    locks.shutdown().await;
    Ok(())
}
