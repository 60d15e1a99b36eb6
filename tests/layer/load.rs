//! 64 connections that arrive, wait, are served, refused, and disconnect at random.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    routing::post,
};
use lock_runtime::LockManager;
use lock_tower::{HeldLock, LockLayer};
use tokio::{io::AsyncWriteExt, task::JoinSet};

use crate::{
    client::{Client, request, serve, soon},
    parts,
    support::{Random, traces, until},
};

const MS: Duration = Duration::from_millis(1);
const KEYS: usize = 16;
/// Each request holds its lock for no longer than this, whatever becomes of its client.
const MAX_HOLD: Duration = Duration::from_millis(500);
/// Longer than a store takes to answer, even on a busy machine: of a store that has not answered within the wait, it is
/// unknown whether the lock is held, and the request gets 503.
const WAIT: Duration = Duration::from_secs(2);

/// The observations of the load.
#[derive(Debug, Default)]
pub struct Seen {
    inside: [AtomicUsize; KEYS],
    pub overlaps: AtomicUsize,
    pub sections: AtomicUsize,
    pub served: AtomicUsize,
    pub refused: AtomicUsize,
    /// Given up by the client.
    pub left: AtomicUsize,
    /// Ended at the limit of a hold.
    pub ended: AtomicUsize,
}

pub fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Seen {
    pub fn answered(&self, path: &str, status: u16) {
        match status {
            200 => count(&self.served),
            409 => count(&self.refused),
            500 => count(&self.ended),
            // A client does not learn why.
            other => panic!("{path}: {other}; in the log: {:#?}", traces::warnings_of("refused")),
        }
    }

    /// A part of an answer came. Only a stream may be left unfinished, by a hold that reached its limit.
    pub fn broken_off(&self, path: &str, what: &str) {
        assert!(path.starts_with("/stream/"), "{path} was broken off: {what:?}");
        count(&self.ended);
    }
}

/// Counts the sections of one key that run at the same time.
struct Inside(Arc<Seen>, usize);

impl Inside {
    fn enter(watch: Arc<Seen>, id: usize) -> Self {
        count(&watch.sections);
        if watch.inside[id].fetch_add(1, Ordering::SeqCst) > 0 {
            count(&watch.overlaps);
        }
        Self(watch, id)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.inside[self.1].fetch_sub(1, Ordering::SeqCst);
    }
}

async fn work(Path(id): Path<usize>, State(watch): State<Arc<Seen>>, lock: HeldLock) -> String {
    let _inside = Inside::enter(watch, id);
    tokio::time::sleep(MS).await;
    lock.fencing_token().to_string()
}

async fn stream(Path(id): Path<usize>, State(watch): State<Arc<Seen>>) -> Body {
    parts(4, MS, Inside::enter(watch, id))
}

/// Some request, and the patience of a client that gives up.
pub fn any_request(random: &mut Random) -> (String, Duration) {
    let place = ["now", "soon", "stream"][usize::try_from(random.below(3)).unwrap()];
    (format!("/{place}/{}", random.below(KEYS as u64)), Duration::from_micros(random.below(4_000)))
}

/// One HTTP/1.1 client: requests of all kinds, some of which it gives up at some moment, until `end`.
async fn http_1(server: SocketAddr, watch: Arc<Seen>, seed: u64, end: Instant) {
    let mut random = Random::from_seed(seed);
    let mut connected = None;
    while Instant::now() < end {
        let mut client = match connected.take() {
            Some(client) => client,
            None => Client::connect(server).await,
        };
        let (path, pause) = any_request(&mut random);
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
            // The server does not notice that such a client has disconnected.
            2 if random.below(8) == 0 => {
                let text = request(&path).replace("length: 0", "length: 9") + "half";
                client.stream.write_all(text.as_bytes()).await.unwrap();
                tokio::time::sleep(pause).await;
            }
            _ => {
                client.send(&path).await;
                match soon("the answer", client.status()).await {
                    Ok(status) => {
                        watch.answered(&path, status);
                        connected = Some(client);
                    }
                    Err(what) => watch.broken_off(&path, &what),
                }
                continue;
            }
        }
        count(&watch.left);
    }
}

/// Runs the load for `length`, and waits for the end of all that it began.
pub async fn run(locks: &LockManager, seed: u64, length: Duration) -> Arc<Seen> {
    let watch = Arc::new(Seen::default());
    let lock = LockLayer::new(locks.clone(), "key:<id:u64>").unwrap().max_hold(MAX_HOLD);
    let app = Router::new()
        .route("/now/{id}", post(work).route_layer(lock.clone()))
        .route("/soon/{id}", post(work).route_layer(lock.clone().wait(WAIT)))
        .route("/stream/{id}", post(stream).route_layer(lock))
        .with_state(Arc::clone(&watch));
    let server = serve(app).await;
    let end = Instant::now() + length;
    let mut clients = JoinSet::new();
    for number in 0..64 {
        let (watch, seed) = (Arc::clone(&watch), seed ^ number);
        #[cfg(feature = "http2")]
        if number % 4 == 0 {
            clients.spawn(crate::http_2::client(server, watch, seed, end));
            continue;
        }
        clients.spawn(http_1(server, watch, seed, end));
    }
    tokio::time::sleep(length).await;
    while let Some(ended) = soon("the end of a client", clients.join_next()).await {
        ended.unwrap();
    }
    // The sections of disconnected clients end as well.
    until("the end of the last section", || {
        let inside: usize = watch.inside.iter().map(|inside| inside.load(Ordering::SeqCst)).sum();
        if inside == 0 { Ok(()) } else { Err(inside) }
    })
    .await;
    watch
}
