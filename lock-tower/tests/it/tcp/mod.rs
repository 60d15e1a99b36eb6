//! The layer in a real server, over real connections.

mod client;
mod disconnects;
mod early_ends;
mod http_2;
mod keep_alive;
mod slow_clients;

use std::net::SocketAddr;

use axum::Router;
use lock_runtime::LockManager;
use lock_tower::LockLayer;
use tokio::net::TcpListener;

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn lock(locks: &LockManager, template: &str) -> LockLayer {
    LockLayer::new(locks.clone(), template).expect("a template")
}
