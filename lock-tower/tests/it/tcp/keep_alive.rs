//! Requests one after another on a connection that stays open: none meets the lock of the one before it.

use axum::{Router, body::Body, routing::post};
use bytes::Bytes;
use http_body_util::channel::Channel;
use lock_runtime::backend::Memory;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{
    client::{Client, head},
    lock, serve,
};
use crate::support::{key, slow_store};

async fn one_after_the_other(
    memory: &Memory,
    app: Router,
    path: &str,
    times: usize,
    body: &str,
    status: u16,
) {
    let mut client = Client::connect(serve(app).await).await;
    for round in 0..times {
        client.send(path).await;
        let answer = client.answer().await;
        assert_eq!(answer.status, status, "round {round}: {}", answer.body);
        assert!(answer.body.contains(body), "round {round}: {}", answer.body);
    }
    assert!(memory.is_empty());
}

#[tokio::test]
async fn a_client_never_meets_its_own_lock() {
    let (memory, locks) = slow_store();
    let app = Router::new().route("/{id}", post(key).route_layer(lock(&locks, "user:<id>")));
    one_after_the_other(&memory, app, "/1", 200, "user:1", 200).await;
}

#[tokio::test]
async fn nor_behind_an_answer_without_a_body() {
    let (memory, locks) = slow_store();
    let handler = || async { http::StatusCode::NO_CONTENT };
    let app = Router::new().route("/{id}", post(handler).route_layer(lock(&locks, "user:<id>")));
    one_after_the_other(&memory, app, "/1", 50, "", 204).await;
}

#[tokio::test]
async fn nor_behind_a_stream() {
    let (memory, locks) = slow_store();
    let handler = || async {
        let (mut events, body) = Channel::<Bytes>::new(2);
        tokio::spawn(async move {
            for _ in 0..3 {
                events.send_data(Bytes::from_static(b"event")).await.expect("listening");
            }
        });
        Body::new(body)
    };
    let app = Router::new().route("/{id}", post(handler).route_layer(lock(&locks, "user:<id>")));
    one_after_the_other(&memory, app, "/1", 50, "event", 200).await;
}

#[tokio::test]
async fn pipelined_requests_do_not_meet_each_other() {
    let (memory, locks) = slow_store();
    let app = Router::new().route("/{id}", post(key).route_layer(lock(&locks, "user:<id>")));
    let mut client = Client::connect(serve(app).await).await;
    client.send_all(&head("/1", 0).repeat(20)).await;
    for number in 0..20 {
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "user:1"), "{number}");
    }
    assert!(memory.is_empty());
}

#[tokio::test]
async fn an_upgraded_connection_is_not_covered_and_its_lock_free_before_the_client_knows() {
    let (memory, locks) = slow_store();
    let handler = |mut request: axum::extract::Request| async move {
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = hyper_util::rt::TokioIo::new(upgraded.await.expect("upgraded"));
            let mut word = [0; 4];
            stream.read_exact(&mut word).await.expect("received");
            stream.write_all(&word).await.expect("sent");
        });
        (http::StatusCode::SWITCHING_PROTOCOLS, [("connection", "upgrade"), ("upgrade", "echo")])
    };
    let app = Router::new().route("/{id}", post(handler).route_layer(lock(&locks, "user:<id>")));
    let server = serve(app).await;
    let mut upgraded = Vec::new();
    for _ in 0..5 {
        let mut client = Client::connect(server).await;
        client
            .send_all("POST /1 HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n")
            .await;
        let head = client.take("\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert!(memory.is_empty());
        upgraded.push(client);
    }
    for mut client in upgraded {
        client.send_all("echo").await;
        assert_eq!(client.take("echo").await, "echo");
    }
}
