//! A server that is told to stop, as the examples do it.

use std::{pin::pin, time::Duration};

use axum::{Router, routing::post};
use lock_runtime::{LockManager, backend::Memory};
use lock_tower::LockLayer;
use rustix::process::{Signal, getpid, kill_process};
use tokio::net::TcpListener;

use crate::client::{Client, soon};

#[path = "../../examples/support/signals.rs"]
mod signals;

/// A request under its lock is finished, and the lock is free when the program ends.
#[tokio::test]
async fn sigterm_ends_a_server_without_leaving_a_lock() {
    let memory = Memory::new();
    let locks = LockManager::new(memory.clone());
    let lock = LockLayer::new(locks.clone(), "job").unwrap();
    let work = || tokio::time::sleep(Duration::from_millis(300));
    let app = Router::new().route("/job", post(work).route_layer(lock));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut server = pin!(axum::serve(listener, app).with_graceful_shutdown(signals::stop()).into_future());

    let mut client = Client::connect(address).await;
    client.send("/job").await;
    // From the first poll of the server on, the signal is caught.
    tokio::time::timeout(Duration::from_millis(100), &mut server).await.unwrap_err();
    assert_eq!(memory.len(), 1);
    kill_process(getpid(), Signal::TERM).unwrap();
    soon("the end of the server", server).await.unwrap();
    assert_eq!(soon("the answer", client.status()).await, Ok(200));
    locks.shutdown().await;
    assert!(memory.is_empty());
}
