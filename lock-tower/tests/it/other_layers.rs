//! The lock beside layers of others, each of them imitated in a few lines.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::Response,
    routing::{MethodRouter, get, post},
};
use http::{Method, header};
use http_body_util::{BodyExt, channel::Channel};
use lock_runtime::{LockErrorKind, LockManager, lock_key};
use lock_tower::{KeyRejection, LockLayer, MissingKey};
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::support::{DEADLINE, request, soon, store, until};

/// Stands in for a row in a database, or for a session in its store.
type Row = Arc<Mutex<u32>>;

/// A change of the row that others see when it is committed, or saved.
#[derive(Clone)]
struct Change {
    row: Row,
    written: Arc<Mutex<Option<u32>>>,
}

impl Change {
    fn read(&self) -> u32 {
        *self.row.lock().expect("not poisoned")
    }

    fn write(&self, value: u32) {
        *self.written.lock().expect("not poisoned") = Some(value);
    }

    async fn commit(&self) {
        let written = self.written.lock().expect("not poisoned").take();
        if let Some(value) = written {
            tokio::time::sleep(Duration::from_millis(20)).await;
            *self.row.lock().expect("not poisoned") = value;
        }
    }
}

/// Commits what the handler has written.
async fn commits(State(row): State<Row>, mut request: Request, next: Next) -> Response {
    let change = Change { row, written: Arc::default() };
    request.extensions_mut().insert(change.clone());
    let response = next.run(request).await;
    change.commit().await;
    response
}

async fn increments(Extension(change): Extension<Change>) {
    change.write(change.read() + 1);
}

async fn increments_and_commits(Extension(change): Extension<Change>) {
    change.write(change.read() + 1);
    change.commit().await;
}

/// Returns the row after 20 requests at the same time, each of which adds 1.
async fn after_20(row: &Row, route: MethodRouter) -> u32 {
    let app = Router::new().route("/", route);
    let mut requests: JoinSet<_> = (0..20).map(|_| app.clone().oneshot(request("POST", "/"))).collect();
    while let Some(answer) = soon("an answer", requests.join_next()).await {
        assert_eq!(answer.expect("no panic").expect("infallible").status(), 200);
    }
    *row.lock().expect("not poisoned")
}

/// A lock whose key comes from what the layer outside of it has inserted, as from a session.
fn by_extension(locks: &LockManager) -> LockLayer {
    let lock = LockLayer::with_key_fn(locks.clone(), |parts| {
        parts.extensions.get::<Change>().ok_or_else(|| KeyRejection::internal("no session"))?;
        Ok(Some(lock_key!("row")?))
    });
    lock.wait(DEADLINE)
}

#[tokio::test]
async fn what_commits_after_the_handler_belongs_inside_of_the_lock() {
    let (_memory, locks) = store();
    let lock = LockLayer::new(locks.clone(), "row").expect("a template").wait(DEADLINE);

    let row = Row::default();
    let inside =
        post(increments).route_layer(from_fn_with_state(row.clone(), commits)).route_layer(lock.clone());
    assert_eq!(after_20(&row, inside).await, 20);

    // Outside, it commits after the release, and the next request has read the row by then.
    let row = Row::default();
    let outside = post(increments).route_layer(lock).route_layer(from_fn_with_state(row.clone(), commits));
    assert!(after_20(&row, outside).await < 20);

    // Unless the handler commits.
    let row = Row::default();
    let outside = post(increments_and_commits)
        .route_layer(by_extension(&locks))
        .route_layer(from_fn_with_state(row.clone(), commits));
    assert_eq!(after_20(&row, outside).await, 20);
}

/// Returns the status in the head of a gRPC response, if there is one.
async fn grpc(app: &Router, path: &str) -> Option<String> {
    let mut request = request("POST", path);
    request.headers_mut().insert(header::CONTENT_TYPE, "application/grpc".parse().expect("a value"));
    let response = app.clone().oneshot(request).await.expect("infallible");
    response.headers().get("grpc-status").map(|status| status.to_str().expect("ASCII").into())
}

#[tokio::test]
async fn health_checks_behind_a_lock_around_the_whole_server_need_no_key_if_that_may_be_missing() {
    const HEALTH: &str = "/grpc.health.v1.Health/Check";
    let (_memory, locks) = store();
    let app = |missing_key| {
        let lock = LockLayer::new(locks.clone(), "user:<header.x-user>").expect("a template");
        let services =
            Router::new().route(HEALTH, post(|| async {})).route("/demo.Bank/Withdraw", post(|| async {}));
        services.layer(lock.missing_key(missing_key))
    };
    assert_eq!(grpc(&app(MissingKey::Reject), HEALTH).await.as_deref(), Some("3"), "INVALID_ARGUMENT");
    assert_eq!(grpc(&app(MissingKey::Skip), HEALTH).await, None);
    // But then any request may leave the key out.
    assert_eq!(grpc(&app(MissingKey::Skip), "/demo.Bank/Withdraw").await, None);
    // A lock around one service has no such question.
    let lock = LockLayer::new(locks.clone(), "user:<header.x-user>").expect("a template");
    let one = Router::new()
        .route(HEALTH, post(|| async {}))
        .route("/demo.Bank/Withdraw", post(|| async {}).route_layer(lock));
    assert_eq!(grpc(&one, HEALTH).await, None);
    assert_eq!(grpc(&one, "/demo.Bank/Withdraw").await.as_deref(), Some("3"));
}

#[tokio::test]
async fn an_event_stream_that_is_locked_is_tried_again_by_the_browser() {
    let (memory, locks) = store();
    let lock = LockLayer::new(locks, "news").expect("a template");
    let lock = lock.methods([Method::GET]).on_rejection(|rejection| match rejection.kind() {
        LockErrorKind::Contended => {
            let mut response = http::Response::new(Bytes::from_static(b"retry: 1000\n\n"));
            response
                .headers_mut()
                .insert(header::CONTENT_TYPE, "text/event-stream".parse().expect("a value"));
            response
        }
        _ => rejection.response(),
    });
    let events = || async {
        let (mut sender, body) = Channel::<Bytes>::new(1);
        sender.send_data(Bytes::from_static(b"data: 0\n\n")).await.expect("room for one");
        // Kept open until the reader leaves.
        tokio::spawn(async move {
            let _sender = sender;
            tokio::time::sleep(DEADLINE).await;
        });
        ([(header::CONTENT_TYPE, "text/event-stream")], Body::new(body))
    };
    let app = Router::new().route("/events", get(events).route_layer(lock));
    let connect = || async { app.clone().oneshot(request("GET", "/events")).await.expect("infallible") };

    // The body of a reader behind a dead proxy: no client reads it.
    let dead = connect().await;
    let again = connect().await;
    assert_eq!(again.status(), 200);
    assert_eq!(again.headers()[header::CONTENT_TYPE], "text/event-stream");
    assert_eq!(again.into_body().collect().await.expect("a body").to_bytes(), "retry: 1000\n\n");
    drop(dead);
    until("the release in the background", || memory.is_empty()).await;
    let mut served = connect().await.into_body();
    let first = soon("an event", served.frame()).await.expect("a frame").expect("no error");
    assert_eq!(first.into_data().expect("data"), "data: 0\n\n");
}

#[tokio::test]
async fn texts_that_are_one_to_the_handler_are_brought_into_one_form_for_the_lock() {
    let (_memory, locks) = store();
    let user = |parts: &http::request::Parts| {
        let user = parts.headers.get("x-user").and_then(|value| value.to_str().ok());
        user.map(|user| user.trim().to_lowercase()).ok_or_else(|| KeyRejection::bad_request("no `x-user`"))
    };
    let by_form = LockLayer::with_key_fn(locks.clone(), move |parts| {
        let user = user(parts)?;
        Ok(Some(lock_key!("user:<user>")?))
    });
    let by_text = LockLayer::new(locks.clone(), "user:<header.x-user>").expect("a template");
    let _held = locks.lock("user:alice").acquire().await.expect("free");
    for (lock, statuses) in [(by_text, [409, 200, 200]), (by_form, [409, 409, 409])] {
        let app = Router::new().route("/", post(|| async {}).route_layer(lock));
        for (user, status) in ["alice", "Alice", "ALICE "].into_iter().zip(statuses) {
            let mut request = request("POST", "/");
            request.headers_mut().insert("x-user", user.parse().expect("a value"));
            let answer = app.clone().oneshot(request).await.expect("infallible");
            assert_eq!(answer.status(), status, "{user:?}");
        }
    }
}
