//! The layer in a real server, over real connections.

mod support;

use std::{net::SocketAddr, time::Duration};

use axum::{Router, body::Body, routing::post};
use bytes::Bytes;
use http_body_util::channel::Channel;
use lock_runtime::{LockManager, backend::Memory};
use lock_tower::LockLayer;
use support::{key, slow_store, soon, store, until};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// What an HTTP/1.1 client sees of an answer.
struct Answer {
    status: u16,
    body: String,
}

/// A connection that is kept.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    async fn connect(server: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(server).await.expect("listening"), received: Vec::new() }
    }

    async fn send(&mut self, path: &str) {
        let request = format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await.expect("sent");
    }

    /// Reads until `pattern`, and takes everything up to its end.
    async fn take(&mut self, pattern: &str) -> String {
        loop {
            let found = self.received.windows(pattern.len()).position(|window| window == pattern.as_bytes());
            if let Some(at) = found {
                let rest = self.received.split_off(at + pattern.len());
                return String::from_utf8(std::mem::replace(&mut self.received, rest)).expect("UTF-8");
            }
            let read = soon(pattern, self.stream.read_buf(&mut self.received)).await.expect("received");
            assert!(read > 0, "closed before {pattern:?}: {:?}", String::from_utf8_lossy(&self.received));
        }
    }

    /// The answer to the request that was sent, to its last byte and no further.
    async fn answer(&mut self) -> Answer {
        let head = self.take("\r\n\r\n").await.to_ascii_lowercase();
        let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
        let body = if let Some((_, length)) = head.split_once("content-length: ") {
            let length = length.split("\r\n").next().expect("a value").parse().expect("a number");
            while self.received.len() < length {
                let read =
                    soon("the body", self.stream.read_buf(&mut self.received)).await.expect("received");
                assert!(read > 0, "closed in the body");
            }
            let rest = self.received.split_off(length);
            String::from_utf8(std::mem::replace(&mut self.received, rest)).expect("UTF-8")
        } else if head.contains("transfer-encoding: chunked") {
            self.take("0\r\n\r\n").await
        } else {
            assert_eq!(status, 204, "{head}");
            String::new()
        };
        Answer { status, body }
    }
}

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn lock(locks: &LockManager, template: &str) -> LockLayer {
    LockLayer::new(locks.clone(), template).expect("a template")
}

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
