//! The layer in a real server, over real connections.

use std::{
    convert::Infallible,
    net::SocketAddr,
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
    response::{IntoResponse, Response, Sse, sse::Event},
    routing::post,
};
use bytes::Bytes;
use http::request::Parts;
use http_body_util::{Empty, channel::Channel};
use lock_runtime::{Limits, LockKey, LockManager, backend::Memory};
use lock_tower::{KeyRejection, LockLayer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tonic::codegen::tokio_stream;

use crate::support::{DEADLINE, key, slow_store, soon, store, until};

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
        self.send_all(&head(path, 0)).await;
    }

    async fn send_all(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.expect("sent");
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

fn head(path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n")
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

/// The server does not look at the connection then, so it is `max_hold` that frees the lock.
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

/// As the page of the crate has it.
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
    // Nor does it look complete once it is read.
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

#[tokio::test]
async fn a_waiting_client_that_disconnects_leaves_the_queue() {
    let (memory, locks) = store();
    let mut limits = Limits::default();
    limits.waiters_per_key = 1;
    let locks = locks.with_limits(limits);
    let guard = locks.lock("user:1").acquire().await.expect("free");
    // One more in each request that is there: in this runtime of one thread, one that has arrived also asks for its
    // lock before anything else runs.
    let (arrived, there) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
    let (arrivals, mark) = (Arc::clone(&arrived), Arc::clone(&there));
    let by_mark = move |parts: &mut Parts| -> Result<_, KeyRejection> {
        parts.extensions.insert(Arc::clone(&mark));
        arrivals.fetch_add(1, Ordering::Relaxed);
        Ok(Some(LockKey::new("user:1")?))
    };
    let lock = LockLayer::with_key(locks, by_mark).wait(DEADLINE);
    let server = serve(Router::new().route("/", post(key).route_layer(lock))).await;
    let nobody = Arc::strong_count(&there);
    let [mut first, mut second, mut third] =
        [Client::connect(server).await, Client::connect(server).await, Client::connect(server).await];
    first.send("/").await;
    until("the first", || arrived.load(Ordering::Relaxed) == 1).await;
    second.send("/").await;
    assert_eq!(second.answer().await.status, 503, "there is one place");
    drop(first);
    until("the end of the first", || Arc::strong_count(&there) == nobody).await;
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
