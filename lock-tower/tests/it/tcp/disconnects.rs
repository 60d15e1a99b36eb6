//! Clients that disconnect, close their half or reset a stream, and what becomes of their lock.

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
    body::Body,
    extract::Request,
    middleware::{Next, from_fn},
    response::{Response, Sse, sse::Event},
    routing::post,
};
use bytes::Bytes;
use http::{StatusCode, request::Parts};
use http_body_util::{Empty, channel::Channel};
use lock_runtime::{Limits, LockKey};
use lock_tower::{KeyRejection, LockLayer};
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tonic::codegen::tokio_stream;

use super::{
    client::{Client, head},
    lock, serve,
};
use crate::support::{DEADLINE, key, soon, store, until};

#[tokio::test]
async fn a_client_that_disconnects_frees_its_lock() {
    let (memory, locks) = store();
    let handler = || std::future::pending::<()>();
    let app = Router::new().route("/{id}", post(handler).route_layer(lock(&locks, "user:<id>")));
    let server = serve(app).await;
    let mut client = Client::connect(server).await;
    client.send("/1").await;
    until("the hold", || memory.len() == 1).await;

    let mut other = Client::connect(server).await;
    other.send("/1").await;
    assert_eq!(other.answer().await.status, 409);

    drop(client);
    until("the release", || memory.is_empty()).await;
}

/// Finishes the request even if its client leaves, as the crate's page has it.
async fn finish(request: Request, next: Next) -> Result<Response, StatusCode> {
    tokio::spawn(next.run(request)).await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

#[tokio::test]
async fn work_whose_client_leaves_stands_half_done_unless_it_runs_in_a_task_of_its_own() {
    for finishes in [false, true] {
        let (memory, locks) = store();
        let total = Arc::new(AtomicUsize::new(100));
        let both = Arc::clone(&total);
        let transfer = move || async move {
            let before = both.fetch_sub(30, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(300)).await;
            both.fetch_add(30, Ordering::SeqCst);
            before.to_string()
        };
        let route = post(transfer).route_layer(lock(&locks, "transfer"));
        let route = if finishes { route.route_layer(from_fn(finish)) } else { route };
        let server = serve(Router::new().route("/", route)).await;
        let mut client = Client::connect(server).await;
        client.send("/").await;
        until("the debit", || total.load(Ordering::SeqCst) == 70).await;
        drop(client);

        let mut next = Client::connect(server).await;
        let answer = loop {
            next.send("/").await;
            let answer = next.answer().await;
            if answer.status != 409 {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert_eq!((answer.status, &*answer.body), (200, if finishes { "100" } else { "70" }));
        until("the end", || memory.is_empty()).await;
    }
}

#[tokio::test]
async fn a_client_that_disconnects_from_a_stream_frees_its_lock() {
    let (memory, locks) = store();
    let handler = || async {
        let (mut events, body) = Channel::<Bytes>::new(1);
        tokio::spawn(async move {
            while events.send_data(Bytes::from_static(b"event")).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        Body::new(body)
    };
    let app = Router::new().route("/{id}", post(handler).route_layer(lock(&locks, "user:<id>")));
    let mut client = Client::connect(serve(app).await).await;
    client.send("/1").await;
    client.take("event").await;
    client.take("event").await;
    assert_eq!(memory.len(), 1);
    drop(client);
    until("the release", || memory.is_empty()).await;
}

#[tokio::test]
async fn a_client_that_closes_its_half_frees_its_lock() {
    let (memory, locks) = store();
    let handler = || std::future::pending::<()>();
    let app = Router::new().route("/{id}", post(handler).route_layer(lock(&locks, "user:<id>")));
    let mut client = Client::connect(serve(app).await).await;
    client.send("/1").await;
    until("the hold", || memory.len() == 1).await;
    client.stream.shutdown().await.expect("closed");
    until("the release", || memory.is_empty()).await;
}

/// The server does not watch the connection then, so only `max_hold` frees the lock.
#[tokio::test]
async fn a_client_whose_end_is_not_noticed_keeps_its_lock_to_the_limit_only() {
    for unread in [head("/1", 0) + &head("/1", 0), head("/1", 1 << 20) + "a part of it"] {
        let (memory, locks) = store();
        let handler = || std::future::pending::<()>();
        let lock = lock(&locks, "user:<id>").max_hold(Duration::from_millis(300));
        let app = Router::new().route("/{id}", post(handler).route_layer(lock));
        let mut client = Client::connect(serve(app).await).await;
        client.send_all(&unread).await;
        until("the hold", || memory.len() == 1).await;
        drop(client);
        until("the release", || memory.is_empty()).await;
    }
}

#[tokio::test]
async fn server_sent_events_hold_the_lock_until_the_client_goes() {
    let (memory, locks) = store();
    let handler = || async {
        let (events, stream) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            while events.send(Ok::<_, Infallible>(Event::default().data("tick"))).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        Sse::new(tokio_stream::wrappers::ReceiverStream::new(stream))
    };
    let app = Router::new().route("/{id}", post(handler).route_layer(lock(&locks, "user:<id>")));
    let server = serve(app).await;
    let mut client = Client::connect(server).await;
    client.send("/1").await;
    client.take("data: tick").await;
    let mut other = Client::connect(server).await;
    other.send("/1").await;
    assert_eq!(other.answer().await.status, 409);
    client.take("data: tick").await;
    drop(client);
    until("the release", || memory.is_empty()).await;
}

#[tokio::test]
async fn a_waiting_client_that_disconnects_leaves_the_queue() {
    let (memory, locks) = store();
    let mut limits = Limits::default();
    limits.waiters_per_key = 1;
    let locks = locks.with_limits(limits);
    let guard = locks.lock("user:1").acquire().await.expect("free");
    // The strong count of `there` rises by one for each request present. In this single-threaded runtime a request
    // that has arrived also asks for its lock before anything else runs.
    let (arrived, there) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
    let (arrivals, mark) = (Arc::clone(&arrived), Arc::clone(&there));
    let by_mark = move |parts: &mut Parts| -> Result<_, KeyRejection> {
        parts.extensions.insert(Arc::clone(&mark));
        arrivals.fetch_add(1, Ordering::Relaxed);
        Ok(Some(LockKey::new("user:1")?))
    };
    let lock = LockLayer::with_key(locks, by_mark).wait(DEADLINE);
    let server = serve(Router::new().route("/", post(key).route_layer(lock))).await;
    let without_requests = Arc::strong_count(&there);
    let [mut first, mut second, mut third] =
        [Client::connect(server).await, Client::connect(server).await, Client::connect(server).await];
    first.send("/").await;
    until("the first", || arrived.load(Ordering::Relaxed) == 1).await;
    second.send("/").await;
    assert_eq!(second.answer().await.status, 503, "there is one place");
    drop(first);
    until("the end of the first", || Arc::strong_count(&there) == without_requests).await;
    third.send("/").await;
    until("the third", || arrived.load(Ordering::Relaxed) == 3).await;
    guard.release().await.expect("held");
    assert_eq!(third.answer().await.status, 200);
    assert!(memory.is_empty());
}

#[tokio::test]
async fn a_stream_of_http_2_that_is_reset_frees_its_lock_and_not_its_connection() {
    let (memory, locks) = store();
    let app = Router::new()
        .route("/{id}", post(std::future::pending::<()>).route_layer(lock(&locks, "user:<id>")))
        .route("/short/{id}", post(key).route_layer(lock(&locks, "user:<id>")));
    let stream = TcpStream::connect(serve(app).await).await.expect("listening");
    let (mut client, connection) = hyper::client::conn::http2::handshake(
        hyper_util::rt::TokioExecutor::new(),
        hyper_util::rt::TokioIo::new(stream),
    )
    .await
    .expect("a handshake");
    tokio::spawn(connection);
    let mut send = |path: &str| {
        let request = http::Request::post(format!("http://test{path}")).body(Empty::<Bytes>::new());
        client.send_request(request.expect("a request"))
    };
    for _ in 0..3 {
        let mut request = Box::pin(send("/1"));
        tokio::select! {
            response = &mut request => panic!("{response:?}"),
            () = until("the hold", || memory.len() == 1) => {}
        }
        drop(request);
        until("the release", || memory.is_empty()).await;
        assert_eq!(soon("an answer", send("/short/1")).await.expect("answered").status(), 200);
    }
}
