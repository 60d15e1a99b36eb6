//! Clients that hold back their body, or do not read the response: how long they keep a lock.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    http::StatusCode,
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tonic::codegen::tokio_stream;

use super::{
    client::{Client, head},
    lock, serve,
};
use crate::support::{key, soon, store, until};

/// As in the crate's documentation.
async fn read_first(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match tokio::time::timeout(Duration::from_secs(10), to_bytes(body, 64 * 1024)).await {
        Ok(Ok(body)) => next.run(Request::from_parts(head, body.into())).await,
        Ok(Err(_)) => StatusCode::PAYLOAD_TOO_LARGE.into_response(),
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
}

#[tokio::test]
async fn a_client_that_holds_back_its_body_keeps_the_lock_unless_it_is_read_first() {
    for is_read_first in [false, true] {
        let (memory, locks) = store();
        let route = post(|body: String| async { body }).route_layer(lock(&locks, "user:<id>"));
        let route = if is_read_first { route.route_layer(from_fn(read_first)) } else { route };
        let begun = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&begun);
        let app = Router::new().route("/{id}", route).layer(from_fn(move |request: Request, next: Next| {
            count.fetch_add(1, Ordering::SeqCst);
            next.run(request)
        }));
        let server = serve(app).await;
        let [mut slow, mut other] = [Client::connect(server).await, Client::connect(server).await];
        slow.send_all(&head("/1", 4)).await;
        until("the request has begun", || begun.load(Ordering::SeqCst) == 1).await;
        if !is_read_first {
            until("it holds the lock", || !memory.is_empty()).await;
        }
        other.send_all(&(head("/1", 5) + "other")).await;
        let answer = other.answer().await;
        assert_eq!(answer.status, if is_read_first { 200 } else { 409 }, "{}", answer.body);
        slow.send_all("body").await;
        assert_eq!(slow.answer().await.body, "body");
        if is_read_first {
            let mut large = Client::connect(server).await;
            large.send_all(&(head("/1", 1024 * 1024) + &"x".repeat(64 * 1024 + 1))).await;
            let status = large.take("\r\n").await;
            assert!(status.contains("413"), "{status}");
            assert!(memory.is_empty());
        }
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_keeps_its_lock_to_the_limit_only() {
    let (memory, locks) = store();
    let handler = || async {
        let chunk = Bytes::from(vec![b'x'; 1 << 16]);
        Body::from_stream(tokio_stream::iter(std::iter::repeat_with(move || {
            Ok::<_, Infallible>(chunk.clone())
        })))
    };
    let lock = lock(&locks, "user:<id>").ttl(Duration::from_millis(400)).max_hold(Duration::from_millis(600));
    let app = Router::new()
        .route("/{id}", post(handler).route_layer(lock.clone()))
        .route("/short/{id}", post(key).route_layer(lock));
    let server = serve(app).await;
    let mut client = Client::connect(server).await;
    client.send("/1").await;
    until("the hold", || memory.len() == 1).await;
    let mut other = Client::connect(server).await;
    soon("the other's turn", async {
        loop {
            other.send("/short/1").await;
            match other.answer().await.status {
                200 => break,
                409 => tokio::time::sleep(Duration::from_millis(5)).await,
                status => panic!("{status}"),
            }
        }
    })
    .await;
    // The response does not look complete either.
    let (mut sink, mut last) = (vec![0; 1 << 16], 0);
    let complete = soon("the end", async {
        loop {
            match client.stream.read(&mut sink).await {
                Ok(0) => break sink[..last].ends_with(b"0\r\n\r\n"),
                Ok(read) => last = read,
                Err(_) => break false,
            }
        }
    });
    assert!(!complete.await);
    until("the release", || memory.is_empty()).await;
}
