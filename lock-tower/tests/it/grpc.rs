//! The layer and the attribute in a real tonic server, with a real tonic client.

use std::time::{Duration, Instant};

use axum::{Router, routing::post};
use lock_runtime::LockManager;
use lock_tower::LockLayer;
use tonic::{
    Code, Request,
    service::{LayerExt, Routes},
    transport::{Server, server::TcpIncoming},
};
use tonic_types::StatusExt;

use crate::grpc_service::{Bank, Client, listen, order};
use crate::support::{DEADLINE, key, slow_store, soon, store, until};

const MS: Duration = Duration::from_millis(1);

fn layer(locks: &LockManager) -> LockLayer {
    LockLayer::new(locks.clone(), "account:<header.x-account:u64>").expect("a template")
}

/// The position of the layer.
#[derive(Clone, Copy, Debug)]
enum Place {
    Server,
    Service,
}

async fn serve(place: Place, layer: LockLayer, bank: Bank) -> Client {
    let (listener, address) = listen().await;
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    match place {
        Place::Server => {
            tokio::spawn(Server::builder().layer(layer).add_service(bank).serve_with_incoming(incoming))
        }
        Place::Service => {
            let bank = layer.named_layer(bank);
            tokio::spawn(Server::builder().add_service(bank).serve_with_incoming(incoming))
        }
    };
    Client::connect(address).await
}

/// The annotated method alone.
async fn serve_bank(locks: &LockManager) -> Client {
    let (listener, address) = listen().await;
    let bank = Bank::new(locks);
    tokio::spawn(
        Server::builder()
            .add_service(bank)
            .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))),
    );
    Client::connect(address).await
}

#[tokio::test]
async fn a_busy_lock_is_aborted_with_advice() {
    for place in [Place::Server, Place::Service] {
        let (memory, locks) = store();
        let client = serve(place, layer(&locks), Bank::new(&locks)).await;
        let guard = locks.lock("account:42").acquire().await.expect("free");
        let refused = soon("the refusal", client.unary("Withdraw", order(42, 0))).await.expect_err("busy");
        assert_eq!((refused.code(), refused.message()), (Code::Aborted, "Another request holds the lock"));
        let delay = refused.get_details_retry_info().expect("known").retry_delay.expect("known");
        // Not the 30 s of a renewed lease.
        assert_eq!(delay, Duration::from_secs(1), "{place:?}");
        // Another account, the same one in another form, and the same one once it is free.
        assert_eq!(client.unary("Withdraw", order(43, 0)).await.expect("free").key, "account:43");
        let mut padded = order(0, 0);
        padded.metadata_mut().insert("x-account", "042".parse().expect("ASCII"));
        assert_eq!(client.unary("Withdraw", padded).await.expect_err("busy").code(), Code::Aborted);
        guard.release().await.expect("held");
        assert_eq!(client.unary("Withdraw", order(42, 0)).await.expect("free").key, "account:42");
        assert!(memory.is_empty(), "{place:?}");
    }
}

#[tokio::test]
async fn every_refusal_has_its_code_and_keeps_its_reasons() {
    for place in [Place::Server, Place::Service] {
        let (memory, locks) = store();
        let client = serve(place, layer(&locks), Bank::new(&locks)).await;
        let missing = Request::new(order(42, 0).into_inner());
        let refused = client.unary("Withdraw", missing).await.expect_err("no key");
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert_eq!(
            refused.message(),
            "The request gives no valid lock key: the header `x-account` is missing"
        );

        memory.set_failing(true);
        let refused = client.unary("Withdraw", order(42, 0)).await.expect_err("fails");
        assert_eq!((refused.code(), refused.message()), (Code::Unavailable, "Locks are not available"));
        memory.set_failing(false);

        let wrong = LockLayer::new(locks.clone(), "account:<id>").expect("a template");
        let client = serve(place, wrong, Bank::new(&locks)).await;
        let refused = client.unary("Withdraw", order(42, 0)).await.expect_err("no route parameter");
        assert_eq!((refused.code(), refused.message()), (Code::Internal, "The request cannot be locked"));
    }
}

#[tokio::test]
async fn a_client_never_meets_its_own_lock() {
    for place in [Place::Server, Place::Service] {
        let (memory, locks) = slow_store();
        let client = serve(place, layer(&locks), Bank::new(&locks)).await;
        for round in 0..100 {
            let done = client.unary("Withdraw", order(42, 0)).await;
            assert!(done.is_ok(), "round {round}: {done:?}");
        }
        assert!(memory.is_empty());
    }
}

#[tokio::test]
async fn service_and_method_name_locks() {
    for place in [Place::Server, Place::Service] {
        let (_memory, locks) = store();
        let layer = LockLayer::new(locks.clone(), "<rpc.service>/<rpc.method>").expect("a template");
        let client = serve(place, layer, Bank::new(&locks)).await;
        let done = client.unary("Withdraw", order(42, 0)).await.expect("free");
        assert_eq!(done.key, "demo.Bank/Withdraw");
        let _guard = locks.lock("demo.Bank/Close").acquire().await.expect("free");
        assert_eq!(client.unary("Close", order(42, 0)).await.expect_err("busy").code(), Code::Aborted);
    }
}

#[tokio::test]
async fn a_client_that_waits_no_longer_leaves_the_queue() {
    let (memory, locks) = store();
    let client = serve(Place::Server, layer(&locks).wait(DEADLINE), Bank::new(&locks)).await;
    let guard = locks.lock("account:42").acquire().await.expect("free");
    let start = Instant::now();
    let mut hurried = order(42, 0);
    hurried.set_timeout(100 * MS);
    // Whether the layer, tonic's server or its client gives up first is a matter of microseconds.
    let refused = client.unary("Withdraw", hurried).await.expect_err("busy");
    assert!(matches!(refused.code(), Code::DeadlineExceeded | Code::Cancelled), "{refused:?}");
    assert!(start.elapsed() < DEADLINE / 2);
    // A request with enough time gets the lock.
    let (done, ()) = tokio::join!(client.unary("Withdraw", order(42, 0)), async {
        tokio::time::sleep(20 * MS).await;
        guard.release().await.expect("held");
    });
    assert_eq!(done.expect("waited for").key, "account:42");
    assert!(memory.is_empty());
}

#[tokio::test]
async fn a_client_that_drops_its_call_frees_the_lock() {
    let (memory, locks) = store();
    let client = serve(Place::Server, layer(&locks), Bank::new(&locks)).await;
    let mut call = Box::pin(client.unary("Withdraw", order(42, 600_000)));
    soon("the hold", async {
        tokio::select! {
            done = &mut call => panic!("{done:?}"),
            () = until("the hold", || memory.len() == 1) => {}
        }
    })
    .await;
    drop(call);
    until("the release", || memory.is_empty()).await;
}

#[tokio::test]
async fn a_stream_keeps_its_lock_until_its_trailers_leave() {
    let (memory, locks) = slow_store();
    let bank = Bank::new(&locks);
    let client = serve(Place::Service, layer(&locks), bank.clone()).await;
    for _ in 0..3 {
        let mut events = client.watch(order(42, 3)).await.expect("free");
        for number in 0..3 {
            assert_eq!(memory.len(), 1);
            let refused = client.unary("Withdraw", order(42, 0)).await.expect_err("busy");
            assert_eq!(refused.code(), Code::Aborted);
            bank.events.add_permits(1);
            let event = soon("an event", events.message()).await.expect("no error").expect("three of them");
            assert_eq!(event.key, number.to_string());
        }
        assert!(soon("the end", events.message()).await.expect("no error").is_none());
        assert!(memory.is_empty());
    }
}

#[tokio::test]
async fn a_stream_that_lost_its_lock_ends_with_an_error() {
    let (memory, locks) = store();
    let bank = Bank::new(&locks);
    let client = serve(Place::Server, layer(&locks).ttl(200 * MS), bank.clone()).await;
    let mut events = client.watch(order(42, 2)).await.expect("free");
    bank.events.add_permits(1);
    assert!(soon("an event", events.message()).await.expect("no error").is_some());
    assert!(memory.lose("account:42"));
    soon("the loss", events.message()).await.expect_err("does not look complete");
}

#[tokio::test]
async fn a_lock_that_is_lost_aborts_the_call() {
    let (memory, locks) = store();
    let client = serve(Place::Server, layer(&locks).ttl(200 * MS), Bank::new(&locks)).await;
    let (refused, ()) = tokio::join!(client.unary("Withdraw", order(42, 600_000)), async {
        until("the hold", || memory.len() == 1).await;
        assert!(memory.lose("account:42"));
    });
    let refused = refused.expect_err("lost");
    assert_eq!(refused.code(), Code::Aborted);
    assert!(refused.message().starts_with("The lock was lost"), "{refused:?}");
}

#[tokio::test]
async fn an_annotated_method_answers_like_the_layer() {
    let (memory, locks) = store();
    let client = serve_bank(&locks.clone().retry_after(Duration::from_millis(2500))).await;
    assert_eq!(client.unary("Close", order(42, 0)).await.expect("free").key, "account:42");
    assert!(memory.is_empty());

    let guard = locks.lock("account:42").acquire().await.expect("free");
    let refused = client.unary("Close", order(42, 0)).await.expect_err("busy");
    assert_eq!((refused.code(), refused.message()), (Code::Aborted, "Another request holds the lock"));
    let delay = refused.get_details_retry_info().expect("known").retry_delay.expect("known");
    assert_eq!(delay, Duration::from_millis(2500));
    guard.release().await.expect("held");

    memory.set_failing(true);
    let refused = client.unary("Close", order(42, 0)).await.expect_err("fails");
    assert_eq!((refused.code(), refused.message()), (Code::Unavailable, "Locks are not available"));
    assert!(refused.get_details_retry_info().is_none());
}

#[tokio::test]
async fn one_port_speaks_both() {
    let (_memory, locks) = store();
    let lock = |template| LockLayer::new(locks.clone(), template).expect("a template");
    let bank = lock("account:<header.x-account:u64>").named_layer(Bank::new(&locks));
    let app = Router::new().route("/accounts/{id}", post(key).route_layer(lock("account:<id:u64>")));
    let app = Routes::new(bank).prepare().into_axum_router().merge(app);
    let (listener, address) = listen().await;
    tokio::spawn(async move { axum::serve(listener, app).await });
    let client = Client::connect(address).await;
    let post = async || {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("listening");
        let request =
            b"POST /accounts/42 HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(request).await.expect("sent");
        let mut answer = String::new();
        soon("the answer", stream.read_to_string(&mut answer)).await.expect("received");
        answer
    };
    assert!(post().await.starts_with("HTTP/1.1 200"));
    assert_eq!(client.unary("Withdraw", order(42, 0)).await.expect("free").key, "account:42");
    let _guard = locks.lock("account:42").acquire().await.expect("free");
    let answer = post().await;
    assert!(answer.starts_with("HTTP/1.1 409") && answer.contains("application/problem+json"), "{answer}");
    assert_eq!(client.unary("Withdraw", order(42, 0)).await.expect_err("busy").code(), Code::Aborted);
}
