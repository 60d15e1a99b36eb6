//! The layer before real clients, on every store.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]
#![allow(unreachable_pub, dead_code, reason = "the support is shared with other tests")]

mod support;

use std::{
    fs,
    future::Future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Path, State},
    routing::post,
};
use http_body_util::{BodyExt, channel::Channel};
use lock_runtime::{LockManager, backend::Memory};
use lock_tower::{HeldLock, LockLayer};
use support::{Random, redis_server::RedisServer, resp::Value, until};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);
const MS: Duration = Duration::from_millis(1);

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.unwrap_or_else(|_| panic!("{what} did not come"))
}

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn request(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n\r\n")
}

/// A connection that is kept.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    async fn connect(server: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(server).await.unwrap(), received: Vec::new() }
    }

    async fn send(&mut self, path: &str) {
        self.stream.write_all(request(path).as_bytes()).await.unwrap();
    }

    /// The status of the next answer, once its last byte is there.
    async fn status(&mut self) -> u16 {
        loop {
            if let Some((length, status)) = complete(&self.received) {
                self.received.drain(..length);
                return status;
            }
            let read = self.stream.read_buf(&mut self.received).await.unwrap();
            assert!(read > 0, "closed in {:?}", String::from_utf8_lossy(&self.received));
        }
    }
}

/// The length of the answer at the beginning, if it is all there, and its status.
fn complete(received: &[u8]) -> Option<(usize, u16)> {
    let text = String::from_utf8_lossy(received).to_ascii_lowercase();
    let head = text.find("\r\n\r\n")? + 4;
    let status = text.split(' ').nth(1)?.parse().unwrap();
    let body = match text[..head].split_once("content-length: ") {
        Some((_, rest)) => rest.split("\r\n").next()?.parse().unwrap(),
        None => text[head..].find("0\r\n\r\n")? + 5,
    };
    (head + body <= received.len()).then_some((head + body, status))
}

/// A body of so many parts, with a pause before each; what `kept` is goes with it.
fn parts(count: usize, pause: Duration, kept: impl Send + 'static) -> Body {
    let (mut sender, body) = Channel::<Bytes>::new(1);
    tokio::spawn(async move {
        for _ in 0..count {
            tokio::time::sleep(pause).await;
            if sender.send_data(Bytes::from_static(b"part of a stream\n")).await.is_err() {
                return;
            }
        }
    });
    Body::new(body.map_frame(move |frame| {
        let _kept = &kept;
        frame
    }))
}

/// 1,000 requests of one client on one key: each must find the lock free that the one before it had.
async fn one_after_the_other(locks: &LockManager) {
    let lock = LockLayer::new(locks.clone(), "user:<id:u64>").unwrap();
    let app = Router::new()
        .route("/text/{id}", post(|| async { "done" }).route_layer(lock.clone()))
        .route("/stream/{id}", post(|| async { parts(2, Duration::ZERO, ()) }).route_layer(lock));
    let mut client = Client::connect(serve(app).await).await;
    for number in 0..1_000 {
        client.send(if number % 4 == 0 { "/stream/1" } else { "/text/1" }).await;
        assert_eq!(soon("the answer", client.status()).await, 200, "request {number}");
    }
}

#[tokio::test]
async fn a_client_never_meets_its_own_lock_in_this_process() {
    let memory = Memory::new();
    one_after_the_other(&LockManager::new(memory.clone())).await;
    assert!(memory.is_empty());
}

#[tokio::test]
async fn a_client_never_meets_its_own_lock_on_redis() {
    let server = RedisServer::start(&[]);
    one_after_the_other(&LockManager::connect(&url(&server)).await.unwrap()).await;
    until("nothing but the fence is left", || only_the_fence(&server)).await;
}

fn url(server: &RedisServer) -> String {
    format!("redis+unix://{}", server.socket().display())
}

fn only_the_fence(server: &RedisServer) -> Result<(), Value> {
    match server.command(&["KEYS", "*"]) {
        Value::Array(keys) if keys.len() <= 1 => Ok(()),
        other => Err(other),
    }
}

const KEYS: usize = 16;

/// What the sections of the load have seen.
#[derive(Default)]
struct Seen {
    inside: [AtomicUsize; KEYS],
    overlaps: AtomicUsize,
    sections: AtomicUsize,
}

/// Counts the sections of one key that run at the same time.
struct Inside(Arc<Seen>, usize);

impl Inside {
    fn enter(seen: Arc<Seen>, id: usize) -> Self {
        seen.sections.fetch_add(1, Ordering::Relaxed);
        if seen.inside[id].fetch_add(1, Ordering::SeqCst) > 0 {
            seen.overlaps.fetch_add(1, Ordering::Relaxed);
        }
        Self(seen, id)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.inside[self.1].fetch_sub(1, Ordering::SeqCst);
    }
}

async fn work(Path(id): Path<usize>, State(seen): State<Arc<Seen>>, lock: HeldLock) -> String {
    let _inside = Inside::enter(seen, id);
    tokio::time::sleep(MS).await;
    lock.fencing_token().to_string()
}

async fn stream(Path(id): Path<usize>, State(seen): State<Arc<Seen>>) -> Body {
    parts(4, MS, Inside::enter(seen, id))
}

/// How many clients went which way.
#[derive(Debug, Default)]
struct Ways {
    served: usize,
    refused: usize,
    disconnected: usize,
}

/// One client: requests of all kinds, some of which it gives up at some moment, until `end`.
async fn client(server: SocketAddr, seed: u64, end: Instant) -> Ways {
    let (mut random, mut ways) = (Random::from_seed(seed), Ways::default());
    let mut connected = None;
    while Instant::now() < end {
        let mut client = match connected.take() {
            Some(client) => client,
            None => Client::connect(server).await,
        };
        let place = ["now", "soon", "stream"][usize::try_from(random.below(3)).unwrap()];
        let path = format!("/{place}/{}", random.below(KEYS as u64));
        let pause = Duration::from_micros(random.below(4_000));
        match random.below(8) {
            0 => {
                client.send(&path).await;
                tokio::time::sleep(pause).await;
            }
            1 => {
                client.send(&path).await;
                tokio::time::sleep(pause).await;
                client.stream.shutdown().await.ok();
            }
            // The server does not notice that such a client is gone.
            2 if random.below(8) == 0 => {
                let text = request(&path).replace("length: 0", "length: 9") + "half";
                client.stream.write_all(text.as_bytes()).await.unwrap();
                tokio::time::sleep(pause).await;
            }
            _ => {
                client.send(&path).await;
                match soon("the answer", client.status()).await {
                    200 => ways.served += 1,
                    409 => ways.refused += 1,
                    // A hold that ended at its limit, behind a client whose end was not noticed.
                    503 => {}
                    other => panic!("{path}: {other}"),
                }
                connected = Some(client);
                continue;
            }
        }
        ways.disconnected += 1;
    }
    ways
}

/// 64 connections that come, wait, are served, refused, and go when they like.
async fn mixed_load(locks: &LockManager, watch: &Arc<Seen>, seed: u64, length: Duration) -> Ways {
    let lock = LockLayer::new(locks.clone(), "key:<id:u64>").unwrap().max_hold(500 * MS);
    let app = Router::new()
        .route("/now/{id}", post(work).route_layer(lock.clone()))
        .route("/soon/{id}", post(work).route_layer(lock.clone().wait(50 * MS)))
        .route("/stream/{id}", post(stream).route_layer(lock))
        .with_state(Arc::clone(watch));
    let server = serve(app).await;
    let end = Instant::now() + length;
    let mut clients = JoinSet::new();
    for number in 0..64 {
        clients.spawn(client(server, seed ^ number, end));
    }
    tokio::time::sleep(length).await;
    let mut all = Ways::default();
    while let Some(ways) = soon("the end of a client", clients.join_next()).await {
        let ways = ways.unwrap();
        all.served += ways.served;
        all.refused += ways.refused;
        all.disconnected += ways.disconnected;
    }
    // The sections of those who left end as well.
    until("the end of the last section", || {
        let inside: usize = watch.inside.iter().map(|inside| inside.load(Ordering::SeqCst)).sum();
        if inside == 0 { Ok(()) } else { Err(inside) }
    })
    .await;
    all
}

/// What this process uses, in MiB.
fn resident() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() / 256
}

async fn nothing_stays_of_a_mixed_load(
    name: &str,
    locks: &LockManager,
    left: impl Fn() -> Result<(), String>,
) {
    let seconds = std::env::var("LOCK_TEST_TORTURE").map_or(3, |text| text.parse().unwrap());
    let (seed, watch) = (Random::seed(), Arc::new(Seen::default()));
    // What grows once, like the tables and the buffers of the allocator, has grown after this.
    mixed_load(locks, &watch, seed, Duration::from_secs(2)).await;
    let before = resident();
    let ways = mixed_load(locks, &watch, !seed, Duration::from_secs(seconds)).await;
    until("nothing is left in the store", &left).await;
    let after = resident();
    let overlaps = watch.overlaps.load(Ordering::Relaxed);
    println!(
        "{name}: seed {seed}, {} sections, {overlaps} overlaps, {ways:?}, {before} MiB before, {after} MiB after",
        watch.sections.load(Ordering::Relaxed)
    );
    assert_eq!(overlaps, 0);
    assert!(ways.served > 100 && ways.refused > 10 && ways.disconnected > 10, "{ways:?}");
    assert!(after <= before + 16, "{before} MiB, then {after} MiB");
}

/// One test for all stores, because both look at the memory of the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stays_of_64_connections_that_disconnect_at_random() {
    let memory = Memory::new();
    nothing_stays_of_a_mixed_load("memory", &LockManager::new(memory.clone()), || {
        if memory.is_empty() { Ok(()) } else { Err(format!("{} locks", memory.len())) }
    })
    .await;
    let server = RedisServer::start(&[]);
    let locks = LockManager::connect(&url(&server)).await.unwrap();
    nothing_stays_of_a_mixed_load("redis", &locks, || {
        only_the_fence(&server).map_err(|left| format!("{left:?}"))
    })
    .await;
}
