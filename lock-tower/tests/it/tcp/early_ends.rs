//! Responses that the server ends early: a handler that panics, a stream that lost its lock.

use std::time::Duration;

use axum::{Router, body::Body, routing::post};
use bytes::Bytes;
use http_body_util::channel::Channel;
use tokio::io::AsyncReadExt;

use super::{client::Client, lock, serve};
use crate::support::{soon, store, until};

#[tokio::test]
async fn a_handler_that_panics_frees_its_lock_and_the_server_goes_on() {
    let (memory, locks) = store();
    let handler = |axum::extract::Path(id): axum::extract::Path<u64>| async move {
        assert_ne!(id, 13, "on purpose");
        "fine"
    };
    let app = Router::new().route("/{id}", post(handler).route_layer(lock(&locks, "user:<id:u64>")));
    let server = serve(app).await;
    let mut client = Client::connect(server).await;
    client.send("/13").await;
    let mut rest = Vec::new();
    soon("the close", client.stream.read_to_end(&mut rest)).await.expect("closed");
    until("the release", || memory.is_empty()).await;
    let mut client = Client::connect(server).await;
    client.send("/12").await;
    assert_eq!(client.answer().await.body, "fine");
}

#[tokio::test]
async fn a_stream_that_lost_its_lock_does_not_look_complete() {
    let (memory, locks) = store();
    let handler = || async {
        let (mut events, body) = Channel::<Bytes>::new(1);
        events.send_data(Bytes::from_static(b"event")).await.expect("room");
        tokio::spawn(async move {
            let _open = events;
            std::future::pending::<()>().await;
        });
        Body::new(body)
    };
    let lock = lock(&locks, "user:<id>").ttl(Duration::from_millis(200));
    let app = Router::new().route("/{id}", post(handler).route_layer(lock));
    let mut client = Client::connect(serve(app).await).await;
    client.send("/1").await;
    client.take("event").await;
    assert!(memory.lose("user:1"));
    let mut rest = Vec::new();
    // However the connection ends, the last chunk does not come.
    let _ = soon("the close", client.stream.read_to_end(&mut rest)).await;
    client.received.extend(rest);
    let rest = String::from_utf8_lossy(&client.received).into_owned();
    assert!(!rest.contains("0\r\n\r\n"), "{rest:?}");
}
