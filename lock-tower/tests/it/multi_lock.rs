//! A layer that holds several locks for each request.

use std::time::Duration;

use axum::{Router, routing::post};
use lock_runtime::LockManager;
use lock_tower::{HeldLock, HeldLocks, LockLayer, MissingKey};

use crate::support::{send, store, until};

fn transfers(locks: &LockManager) -> LockLayer {
    let keys = ["account:<from:u64>", "account:<query.to:u64>"];
    LockLayer::all(locks.clone(), keys).expect("templates")
}

async fn names(held: HeldLocks) -> String {
    assert!(held.is_valid());
    held.iter().map(|held| held.key().as_str()).collect::<Vec<_>>().join(" ")
}

fn app(lock: LockLayer) -> Router {
    Router::new().route("/{from}", post(names).route_layer(lock))
}

#[tokio::test]
async fn a_request_holds_all_of_them_in_one_order_and_lets_them_go() {
    let (memory, locks) = store();
    let app = app(transfers(&locks));
    for (uri, names) in
        [("/1?to=2", "account:1 account:2"), ("/2?to=1", "account:1 account:2"), ("/3?to=03", "account:3")]
    {
        let answer = send(&app, "POST", uri).await;
        assert_eq!((answer.status.as_u16(), &*answer.body), (200, names), "{uri}");
        assert!(memory.is_empty(), "{uri}");
    }
}

#[tokio::test]
async fn one_that_is_held_refuses_the_request_and_the_others_stay_free() {
    let (memory, locks) = store();
    let app = app(transfers(&locks));
    for key in ["account:1", "account:2"] {
        let guard = locks.lock(key).acquire().await.expect("free");
        let answer = send(&app, "POST", "/1?to=2").await;
        assert_eq!((answer.status.as_u16(), answer.problem()), (409, "contended"), "{key}");
        until("the release of the other in the background", || memory.len() == 1).await;
        guard.release().await.expect("held");
    }
    assert_eq!(send(&app, "POST", "/1?to=x").await.status, 400);
    assert_eq!(send(&app, "POST", "/1").await.status, 400);
}

#[tokio::test]
async fn without_some_of_the_values_it_holds_the_others() {
    let (_memory, locks) = store();
    let keys = ["tenant:<header.x-tenant>", "account:<query.to:u64>"];
    let lock = LockLayer::all(locks, keys).expect("templates").missing_key(MissingKey::Skip);
    let app = Router::new().route(
        "/",
        post(|held: Option<HeldLocks>| async {
            match held {
                Some(held) => names(held).await,
                None => "none".into(),
            }
        })
        .route_layer(lock),
    );
    assert_eq!(send(&app, "POST", "/?to=7").await.body, "account:7");
    assert_eq!(send(&app, "POST", "/").await.body, "none");
    assert_eq!(send(&app, "POST", "/?to=x").await.status, 400);
}

#[tokio::test]
async fn the_loss_of_one_ends_the_request() {
    let (memory, locks) = store();
    let store = memory.clone();
    let handler = move |held: HeldLocks| async move {
        assert!(store.lose("account:2"), "held");
        held.lost().await;
        std::future::pending::<()>().await;
    };
    let app = Router::new().route("/{from}", post(handler).route_layer(transfers(&locks)));
    let answer = send(&app, "POST", "/1?to=2").await;
    assert_eq!((answer.status.as_u16(), answer.problem()), (500, "lost"));
    drop(app);
    locks.shutdown().await;
    assert!(memory.is_empty());
}

#[tokio::test]
async fn they_are_ambient_in_the_handler() {
    let (_memory, locks) = store();
    let again = locks.clone();
    let handler = move || async move {
        lock_runtime::ensure_locked("account:1").expect("held");
        lock_runtime::ensure_locked("account:2").expect("held");
        let error = again.lock("account:2").acquire().await.expect_err("its own");
        error.kind().eq(&lock_runtime::LockErrorKind::WouldDeadlock).to_string()
    };
    let app = Router::new().route("/{from}", post(handler).route_layer(transfers(&locks)));
    assert_eq!(send(&app, "POST", "/1?to=2").await.body, "true");
}

#[tokio::test]
async fn a_handler_that_takes_the_other_view_is_refused() {
    let (_memory, locks) = store();
    let one = LockLayer::new(locks.clone(), "account:<from>").expect("a template");
    let app = Router::new()
        .route("/one/{from}", post(names).route_layer(one))
        .route("/several/{from}", post(|_: HeldLock| async {}).route_layer(transfers(&locks)));
    for uri in ["/one/1", "/several/1?to=2"] {
        let answer = send(&app, "POST", uri).await;
        assert_eq!((answer.status.as_u16(), answer.problem()), (500, "failed"), "{uri}");
    }
}

#[test]
fn a_list_without_a_template_is_refused() {
    let (_memory, locks) = store();
    let none: [&str; 0] = [];
    let error = LockLayer::all(locks.clone(), none).expect_err("none");
    assert_eq!(error.to_string(), "a layer of several locks without a key");
    LockLayer::all(locks, ["account:<from>", "account:<to"]).expect_err("not closed");
}

#[tokio::test]
async fn they_are_waited_for_together() {
    let (_memory, locks) = store();
    let app = app(transfers(&locks).wait(Duration::from_secs(10)));
    let guard = locks.lock("account:2").acquire().await.expect("free");
    let (answer, ()) = tokio::join!(send(&app, "POST", "/1?to=2"), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        guard.release().await.expect("held");
    });
    assert_eq!(answer.status, 200);
}
