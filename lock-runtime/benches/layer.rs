//! Requests to an axum server on loopback over 64 keep-alive connections: the price of a lock for each.
//!
//! The plain service, a layer that does nothing, and the layer on the store in this process; on Redis the layer, the
//! same lock called in the handler, and `SET … NX PX` with compare-and-delete written in the handler. Server and
//! clients share the cores. All run in many short rounds, one after the other; judge the ratios by their interval.
//!
//! `cargo bench -p lock-runtime-benches --bench layer [-- rounds [milliseconds]]`: 61 rounds of 250 ms by default.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a benchmark"
)]

mod support;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{Router, extract::Path, middleware, routing::post, serve::ListenerExt};
use lock_runtime::{LockManager, backend::Memory};
use lock_tower::LockLayer;
use support::{
    Round, Server, in_turn, median,
    plot::{Chart, Scale},
    publish, ratios, round,
    targets::Target,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Mutex,
};

const CONNECTIONS: usize = 64;
const BODY: &str = "Hello, World!";

/// Path and name of each contender.
const CONTENDERS: [(&str, &str); 7] = [
    ("plain", "plain service"),
    ("noop", "a layer that does nothing"),
    ("memory", "LockLayer, in-process"),
    ("hot", "LockLayer, in-process, one key for all"),
    ("raw", "Redis: driver in the handler"),
    ("handler", "Redis: lock in the handler"),
    ("redis", "Redis: LockLayer"),
];
const PLAIN: usize = 0;
const IN_PROCESS: usize = 2;
const DRIVER: usize = 4;
const LOCK: usize = 5;
const LAYER: usize = 6;

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let rounds = numbers.next().unwrap_or(61);
    let length = Duration::from_millis(numbers.next().unwrap_or(250));
    let redis = Server::start();
    let server = serve(app(&redis).await).await;
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = TcpStream::connect(server).await.unwrap();
        stream.set_nodelay(true).unwrap();
        clients.push(Mutex::new(stream));
    }
    let clients = Arc::new(clients);

    let mut results: [Vec<Round>; CONTENDERS.len()] = Default::default();
    // The first round warms up and is not counted.
    for n in 0..=rounds {
        for ((path, _), results) in in_turn(n, CONTENDERS.iter().zip(&mut results)) {
            let clients = Arc::clone(&clients);
            let result = round(&redis, CONNECTIONS, length, move |client, _| {
                let clients = Arc::clone(&clients);
                async move { request(&mut *clients[client].lock().await, path, client).await }
            })
            .await;
            if n > 0 {
                results.push(result);
            }
        }
    }
    show(&mut results);
}

async fn app(redis: &Server) -> Router {
    let hello = || async { BODY };
    let layer = |locks: &LockManager, template| LockLayer::new(locks.clone(), template).unwrap();
    let memory = LockManager::new(Memory::new());
    let locks = LockManager::connect(&redis.url()).await.unwrap();
    let by_lock = locks.clone();
    let in_handler = move |Path(id): Path<u64>| async move {
        let guard = by_lock.lock(format!("handler:{id}")).acquire().await.unwrap();
        guard.release().await.unwrap();
        BODY
    };
    let raw = redis::Client::open(redis.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let delete = Arc::new(redis::Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end",
    ));
    let tokens = Arc::new(AtomicU64::new(0));
    let by_hand = move |Path(id): Path<u64>| async move {
        let (mut raw, key, token) = (raw, format!("raw:{id}"), tokens.fetch_add(1, Ordering::Relaxed));
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(token).arg("NX").arg("PX").arg(30_000);
        let () = set.query_async(&mut raw).await.unwrap();
        let deleted: i64 = delete.key(&key).arg(token).invoke_async(&mut raw).await.unwrap();
        assert_eq!(deleted, 1);
        BODY
    };
    Router::new()
        .route("/plain/{id}", post(hello))
        .route(
            "/noop/{id}",
            post(hello).route_layer(middleware::from_fn(|request, next: middleware::Next| next.run(request))),
        )
        .route("/memory/{id}", post(hello).route_layer(layer(&memory, "user:<id:u64>")))
        .route("/hot/{id}", post(hello).route_layer(layer(&memory, "hot").wait(Duration::from_secs(10))))
        .route("/raw/{id}", post(by_hand))
        .route("/handler/{id}", post(in_handler))
        .route("/redis/{id}", post(hello).route_layer(layer(&locks, "layer:<id:u64>")))
}

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = listener.tap_io(|connection| connection.set_nodelay(true).unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn request(stream: &mut TcpStream, path: &str, id: usize) {
    let request = format!("POST /{path}/{id} HTTP/1.1\r\nhost: bench\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut answer, mut length) = ([0; 1_024], 0);
    while !answer[..length].ends_with(BODY.as_bytes()) {
        let read = stream.read(&mut answer[length..]).await.unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&answer[..length]));
        length += read;
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..length]));
}

fn show(results: &mut [Vec<Round>; CONTENDERS.len()]) {
    let throughput =
        results.each_ref().map(|rounds| rounds.iter().map(Round::per_second).collect::<Vec<_>>());
    let mut chart = Chart::new("requests per second, more is better", Scale::Linear);
    let mut rows = Vec::new();
    for (i, (_, name)) in CONTENDERS.iter().enumerate() {
        // Contenders that use Redis are also compared with the hand-written ones.
        let of = |base: usize| {
            if i < base { "–".to_owned() } else { ratios(&throughput[i], &throughput[base]).to_string() }
        };
        let mut percentile = |p| {
            let values: Vec<f64> =
                results[i].iter_mut().map(|round| round.percentile(p).as_secs_f64() * 1e6).collect();
            format!("{:.0}", median(&values))
        };
        let (p50, p99) = (percentile(0.5), percentile(0.99));
        let cpu: Vec<f64> = results[i].iter().map(Round::cpu_per_cycle).collect();
        chart.bar("64 connections", name, &throughput[i]);
        rows.push(vec![
            (*name).to_owned(),
            format!("{:.0}", median(&throughput[i])),
            of(PLAIN),
            of(DRIVER),
            of(LOCK),
            p50,
            p99,
            format!("{:.0}", median(&cpu)),
        ]);
    }
    publish(
        "layer",
        &[
            "contender",
            "requests/s",
            "of plain [95 %]",
            "of the driver in the handler",
            "of the lock in the handler",
            "p50 µs",
            "p99 µs",
            "CPU µs of all",
        ],
        &rows,
        &[chart],
        &[
            Target::at_least(
                "in-process, a key each: of the plain service",
                ratios(&throughput[IN_PROCESS], &throughput[PLAIN]),
                0.80,
            ),
            Target::at_least(
                "Redis: of the lock in the handler",
                ratios(&throughput[LAYER], &throughput[LOCK]),
                0.85,
            ),
        ],
    );
}
