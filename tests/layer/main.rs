//! The layer under load from real clients, on every store.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]
#![allow(unreachable_pub, dead_code, reason = "the support is shared with other tests")]

mod client;
#[cfg(feature = "http2")]
mod http_2;
mod load;
mod stop;
#[path = "../stores/mod.rs"]
mod stores;

use std::{fs, sync::atomic::Ordering, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    routing::post,
};
use client::{Client, serve, soon};
use http_body_util::{BodyExt, channel::Channel};
use lock_conformance::{
    Server, Site, Store,
    support::{self, Random, until},
};
use lock_tower::LockLayer;

/// Starts the site of a store.
fn start(store: &dyn Store) -> Box<dyn Site> {
    assert_eq!(store.absence(), None, "{}", store.name());
    store.site(Server::Shared)
}

/// Waits until the store keeps nothing of locks whose names contain `mark`: holders, and places in queues.
async fn clean(site: &dyn Site, mark: &str) {
    until("nothing is left in the store", || {
        let left = site.left(mark);
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
}

/// A body of `count` parts, with a pause before each; `kept` is dropped with it.
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

/// 1,000 requests of one client on one key: each must find the lock free that the previous one held.
#[tokio::test]
async fn a_client_never_meets_its_own_lock() {
    for store in stores::all() {
        let site = start(store);
        let locks = store.connect(site.url()).await.unwrap();
        let lock = LockLayer::new(locks, "user:<id:u64>").unwrap();
        let app = Router::new()
            .route("/text/{id}", post(|| async { "done" }).route_layer(lock.clone()))
            .route("/stream/{id}", post(|| async { parts(2, Duration::ZERO, ()) }).route_layer(lock));
        let mut client = Client::connect(serve(app).await).await;
        for number in 0..1_000 {
            client.send(if number % 4 == 0 { "/stream/1" } else { "/text/1" }).await;
            let status = soon("the answer", client.status()).await;
            assert_eq!(status, Ok(200), "{}: request {number}", store.name());
        }
        clean(&*site, "user:").await;
        store.finish();
    }
}

/// Memory of this process, in MiB.
fn resident() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() / 256
}

/// One test for all stores, because it measures the memory of the process. Where `LOCK_TEST_BRIEF` is set, not for those
/// that are like another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stays_of_64_connections_that_disconnect_at_random() {
    support::traces::watch("lock_", &[]);
    let seconds = std::env::var("LOCK_TEST_TORTURE").map_or(3, |text| text.parse().unwrap());
    let seed = Random::seed();
    let is_brief = std::env::var_os("LOCK_TEST_BRIEF").is_some();
    let is_chosen = |store: &&dyn Store| !is_brief || store.groups_of_another().is_empty();
    for store in stores::all().into_iter().filter(is_chosen) {
        let (site, name) = (start(store), store.name());
        let locks = store.connect(site.url()).await.unwrap();
        // Anything that grows only once, like tables and the allocator's buffers, has grown after this.
        load::run(&locks, seed, Duration::from_secs(2)).await;
        let before = resident();
        // Repeated until even a busy machine has done enough.
        let mut sums = [0; 3];
        for round in 0..20 {
            let watch = load::run(&locks, !seed ^ round << 8, Duration::from_secs(seconds)).await;
            println!("{name}: seed {seed}, {watch:?}");
            assert_eq!(watch.overlaps.load(Ordering::Relaxed), 0, "{name}");
            for (sum, count) in sums.iter_mut().zip([&watch.served, &watch.refused, &watch.left]) {
                *sum += count.load(Ordering::Relaxed);
            }
            if sums[0] > 100 && sums[1] > 10 && sums[2] > 10 {
                break;
            }
        }
        assert!(sums[0] > 100 && sums[1] > 10 && sums[2] > 10, "{name}: {sums:?}");
        clean(&*site, "key:").await;
        let after = resident();
        println!("{name}: {before} MiB before, {after} MiB after");
        assert!(after <= before + 16, "{name}: {before} MiB, then {after} MiB");
        store.finish();
    }
}
