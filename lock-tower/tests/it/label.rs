//! The label of a request's lock: what the program has written, never what a client has sent.

use std::time::Duration;

use axum::{
    Extension, Router,
    routing::{any, post},
};
use lock_runtime::{LockManager, lock_key};
use lock_tower::{HeldLock, KeyRejection, LockLayer};
use tonic::transport::{Server, server::TcpIncoming};
use tower::Layer;

use crate::{
    grpc_service::{Bank, Client, listen, order},
    support::{request, send, soon, store},
};

/// A text that only the client knows.
const CANARY: &str = "canary";

/// Answers with the label that the store shows for the lock of the request.
async fn shown(Extension(locks): Extension<LockManager>, Extension(lock): Extension<HeldLock>) -> String {
    let state = locks.inspect(lock.key()).await.expect("the store answers");
    assert!(!format!("{:?}", state.holders).contains(CANARY), "{state:?}");
    state.holders[0].label().unwrap_or("none").to_owned()
}

/// Sends a request full of the canary; returns the label of its lock.
async fn label(app: Router, locks: &LockManager) -> String {
    let app = app.layer(Extension(locks.clone()));
    let answer = send(&app, "POST", &format!("/users/{CANARY}/withdraw?q={CANARY}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

#[tokio::test]
async fn the_label_is_the_route_and_not_its_path() {
    let (_, locks) = store();
    let lock = || LockLayer::new(locks.clone(), "user:<id>").expect("a template");
    let route = |lock| Router::new().route("/users/{id}/withdraw", post(shown).route_layer(lock));
    assert_eq!(label(route(lock()), &locks).await, "/users/{id}/withdraw");
    let nested = Router::new().nest("/users/{id}", Router::new().route("/{action}", post(shown)));
    assert_eq!(label(nested.route_layer(lock()), &locks).await, "/users/{id}/{action}");
    let tail = Router::new().route("/{*id}", post(shown).route_layer(lock()));
    assert_eq!(label(tail, &locks).await, "/{*id}");

    let long = format!("{}/users/{{id}}/withdraw", "/a".repeat(40));
    let app = Router::new().route(&long, post(shown).route_layer(lock())).layer(Extension(locks.clone()));
    let answer = send(&app, "POST", &long.replace("{id}", CANARY)).await;
    assert_eq!((answer.body.len(), long.ends_with(&answer.body)), (63, true), "{answer:?}");
}

#[tokio::test]
async fn without_a_route_the_label_is_the_template() {
    let (_, locks) = store();
    let around = |lock: LockLayer| {
        let app = Router::new().fallback(any(shown)).layer(Extension(locks.clone()));
        let service = lock.layer(app);
        async move {
            use http_body_util::BodyExt;
            use tower::ServiceExt;
            let request = request("POST", &format!("/{CANARY}/{CANARY}?id={CANARY}"));
            let response = service.oneshot(request).await.expect("infallible");
            let body = axum::body::Body::new(response.into_body()).collect().await.expect("a body");
            String::from_utf8(body.to_bytes().to_vec()).expect("UTF-8")
        }
    };
    let template = LockLayer::new(locks.clone(), "user:<query.id>").expect("a template");
    assert_eq!(around(template).await, "user:<query.id>");
    let method = LockLayer::new(locks.clone(), "<rpc.service>/<rpc.method>").expect("a template");
    assert_eq!(around(method).await, "<rpc.service>/<rpc.method>");
    let id = CANARY;
    let classed = LockLayer::with_key_fn(locks.clone(), move |_| Ok(Some(lock_key!("by:<id>")?)));
    assert_eq!(around(classed).await, "by:<id>");
    let plain = |_: &mut http::request::Parts| -> Result<_, KeyRejection> {
        Ok(Some(lock_runtime::LockKey::new(CANARY)?))
    };
    assert_eq!(around(LockLayer::with_key(locks.clone(), plain)).await, "none");
}

#[tokio::test]
async fn a_label_of_the_layer_replaces_the_route() {
    let (_, locks) = store();
    let app = |label: &str| {
        let lock = LockLayer::new(locks.clone(), "user:<id>").expect("a template").label(label);
        Router::new().route("/users/{id}/withdraw", post(shown).route_layer(lock))
    };
    assert_eq!(label(app("withdrawals"), &locks).await, "withdrawals");
    assert_eq!(label(app(""), &locks).await, "none");
    let answer = send(&app(&"x".repeat(64)), "POST", "/users/1/withdraw").await;
    assert_eq!(answer.status, 500, "{answer:?}");
}

#[tokio::test]
async fn several_locks_of_a_request_have_the_same_label() {
    let (_, locks) = store();
    let lock = LockLayer::all(locks.clone(), ["from:<from>", "to:<query.to>"]).expect("templates");
    let manager = locks.clone();
    let handler = move || async move {
        let [from, to] = [manager.inspect("from:1").await, manager.inspect("to:2").await]
            .map(|state| state.expect("the store answers").holders[0].label().map(ToOwned::to_owned));
        assert_eq!(from, to);
        from.unwrap_or_default()
    };
    let app = Router::new().route("/{from}", post(handler).route_layer(lock));
    assert_eq!(send(&app, "POST", "/1?to=2").await.body, "/{from}");
}

/// Tonic routes by a pattern of its own; around a server, the layer runs before the route is known.
#[tokio::test]
async fn the_label_of_a_grpc_request_is_no_text_of_its_client() {
    let (_, locks) = store();
    let lock = LockLayer::new(locks.clone(), "account:<header.x-account>").expect("a template");
    let (listener, address) = listen().await;
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder().layer(lock).add_service(Bank::new(&locks));
    tokio::spawn(server.serve_with_incoming(incoming));
    let client = Client::connect(address).await;
    let call = client.unary("Withdraw", order(42, 500));
    let inspect = soon("the lock of the request", async {
        loop {
            let state = locks.inspect("account:42").await.expect("the store answers");
            if let [holder] = &*state.holders {
                return holder.label().map(ToOwned::to_owned);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let (answer, label) = tokio::join!(call, inspect);
    answer.expect("free");
    assert_eq!(label.as_deref(), Some("account:<header.x-account>"));
}
