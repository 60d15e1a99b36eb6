//! Annotated axum handlers, and their responses.

use axum::{
    Json, Router,
    extract::{FromRef, Path, State},
    response::IntoResponse,
    routing::{get, post},
};
use http::StatusCode;
use http_body_util::BodyExt;
use lock_runtime::{HeldLock, LockError, LockManager, distributed_lock};
use lock_tower::LockLayer;
use serde::{Deserialize, Serialize};
use tower::ServiceExt;

use crate::support::{self, key, request, send, store, until};

#[derive(Clone)]
struct App {
    locks: LockManager,
}

impl FromRef<App> for LockManager {
    fn from_ref(app: &App) -> Self {
        app.locks.clone()
    }
}

#[derive(Serialize, Deserialize)]
struct Withdrawal {
    account: String,
    amount: i64,
}

/// The application's own error.
enum BankError {
    Lock(LockError),
    Poor,
}

impl From<LockError> for BankError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl IntoResponse for BankError {
    fn into_response(self) -> axum::response::Response {
        match self {
            Self::Lock(error) => error.into_response(),
            Self::Poor => (StatusCode::PAYMENT_REQUIRED, "poor").into_response(),
        }
    }
}

#[distributed_lock(key = "user:<id>", manager = app.locks, wait = "0s")]
async fn by_path(Path(id): Path<u64>, State(app): State<App>) -> Result<String, LockError> {
    Ok(format!("user {id}"))
}

#[distributed_lock(key = "user:<id>/account:<order.account>", manager = locks, wait = "0s")]
async fn by_body(
    State(locks): State<LockManager>,
    Path(id): Path<u64>,
    Json(order): Json<Withdrawal>,
) -> Result<Json<Withdrawal>, BankError> {
    if order.amount > 100 {
        return Err(BankError::Poor);
    }
    Ok(Json(Withdrawal { amount: order.amount + i64::try_from(id).expect("small"), ..order }))
}

fn app(locks: &LockManager) -> Router {
    Router::new()
        .route("/users/{id}", post(by_path))
        .route("/users/{id}/withdraw", post(by_body))
        .with_state(App { locks: locks.clone() })
}

async fn withdraw(app: &Router, account: &str, amount: i64) -> (u16, String) {
    let mut request = request("POST", "/users/7/withdraw");
    request.headers_mut().insert("content-type", "application/json".parse().expect("a value"));
    *request.body_mut() = axum::body::Body::from(format!(r#"{{"account":"{account}","amount":{amount}}}"#));
    let response = app.clone().oneshot(request).await.expect("infallible");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (status, String::from_utf8(body.to_vec()).expect("UTF-8"))
}

#[tokio::test]
async fn a_handler_is_annotated_as_it_is() {
    let (memory, locks) = store();
    let app = app(&locks);
    assert_eq!(send(&app, "POST", "/users/42").await.body, "user 42");
    assert_eq!(withdraw(&app, "a", 5).await, (200, r#"{"account":"a","amount":12}"#.into()));
    assert_eq!(withdraw(&app, "a", 500).await, (402, "poor".into()));
    assert!(memory.is_empty());
}

#[tokio::test]
async fn a_busy_lock_is_answered_like_the_layer_does() {
    let (_memory, locks) = store();
    let app = app(&locks).route(
        "/layered/{id}",
        post(key).route_layer(LockLayer::new(locks.clone(), "user:<id:u64>").expect("a template")),
    );
    let _canary = locks.lock("user:42").acquire().await.expect("free");
    let _other = locks.lock("user:7/account:canary").acquire().await.expect("free");
    let answer = send(&app, "POST", "/users/42").await;
    assert_eq!((answer.status.as_u16(), answer.problem()), (409, "contended"));
    assert_eq!(answer.header("retry-after"), Some("1"));
    let layered = send(&app, "POST", "/layered/42").await;
    assert_eq!((layered.status, &layered.body), (answer.status, &answer.body));
    assert_eq!(
        layered.headers.keys().collect::<Vec<_>>(),
        answer.headers.keys().collect::<Vec<_>>(),
        "{answer:?}"
    );
    // The same through the application's own error.
    let (status, body) = withdraw(&app, "canary", 5).await;
    assert_eq!(status, 409);
    assert!(body.contains("#contended") && !body.contains("canary"), "{body}");
    assert_eq!(send(&app, "POST", "/users/43").await.status, 200);
}

#[tokio::test]
async fn a_failing_store_and_a_bad_key_have_answers_too() {
    let (memory, locks) = store();
    let app = app(&locks);
    let (status, body) = withdraw(&app, "", 5).await;
    assert_eq!(status, 400);
    assert!(body.contains("#invalid-key"), "{body}");
    memory.set_failing(true);
    let answer = send(&app, "POST", "/users/42").await;
    assert_eq!((answer.status.as_u16(), answer.problem()), (503, "unavailable"));
    assert_eq!(answer.header("retry-after"), Some("1"));
    for secret in ["42", "set_failing", "in-process"] {
        assert!(!answer.body.contains(secret), "{}", answer.body);
    }
}

#[tokio::test]
async fn a_lost_lock_ends_the_handler_with_500_and_asks_for_no_retry() {
    #[distributed_lock(key = "job", manager = locks)]
    async fn job(State(locks): State<LockManager>) -> Result<(), LockError> {
        std::future::pending().await
    }
    let (memory, locks) = store();
    let locks = locks.ttl(std::time::Duration::from_millis(200));
    let app = Router::new().route("/job", post(job)).with_state(locks);
    let (answer, ()) = tokio::join!(send(&app, "POST", "/job"), async {
        until("the hold", || memory.len() == 1).await;
        assert!(memory.lose("job"));
    });
    assert_eq!((answer.status.as_u16(), answer.problem()), (500, "lost"));
    assert_eq!(answer.header("retry-after"), None);
}

#[tokio::test]
async fn the_hold_of_the_layer_is_an_argument() {
    async fn holds(lock: HeldLock) -> String {
        lock.key().to_string()
    }
    async fn may_hold(lock: Option<HeldLock>) -> String {
        lock.map_or_else(|| "none".into(), |lock| lock.key().to_string())
    }
    let (_memory, locks) = store();
    let lock = LockLayer::new(locks, "user:<id>").expect("a template");
    let app = Router::new()
        .route("/{id}", post(holds).get(holds).put(may_hold).route_layer(lock.clone()))
        .route("/maybe/{id}", get(may_hold).post(may_hold).route_layer(lock))
        .route("/outside/{id}", post(holds));
    assert_eq!(send(&app, "POST", "/1").await.body, "user:1");
    assert_eq!(send(&app, "PUT", "/1").await.body, "user:1");
    assert_eq!(send(&app, "GET", "/maybe/1").await.body, "none");
    assert_eq!(send(&app, "POST", "/maybe/1").await.body, "user:1");
    for (method, uri) in [("GET", "/1"), ("POST", "/outside/1")] {
        let answer = send(&app, method, uri).await;
        assert_eq!((answer.status.as_u16(), answer.problem()), (500, "failed"), "{method} {uri}");
        assert!(!answer.body.contains("route_layer"), "{}", answer.body);
    }
}

#[tokio::test]
async fn a_handler_on_the_layers_key_never_waits_for_itself() {
    #[distributed_lock(key = "user:<id>", manager = locks, wait = "forever")]
    async fn again(Path(id): Path<u64>, State(locks): State<LockManager>) -> Result<String, LockError> {
        Ok(id.to_string())
    }
    #[distributed_lock(key = "order:<id>", manager = locks)]
    async fn other(Path(id): Path<u64>, State(locks): State<LockManager>) -> Result<String, LockError> {
        assert_eq!(lock_runtime::current().expect("held").key(), format!("order:{id}").as_str());
        Ok(id.to_string())
    }
    #[distributed_lock(key = "user:<id>", manager = locks, wait = "forever", reentrant = true)]
    async fn inside(
        Path(id): Path<u64>,
        State(locks): State<LockManager>,
        layers: HeldLock,
    ) -> Result<String, LockError> {
        let entered = lock_runtime::current().expect("held");
        assert_eq!(entered.fencing_token(), layers.fencing_token());
        Ok(id.to_string())
    }
    let (memory, locks) = store();
    let lock = LockLayer::new(locks.clone(), "user:<id:u64>").expect("a template");
    let app = Router::new()
        .route("/again/{id}", post(again).route_layer(lock.clone()))
        .route("/inside/{id}", post(inside).route_layer(lock.clone()))
        .route("/other/{id}", post(other).route_layer(lock.clone()))
        .route("/twice/{id}", post(key).route_layer(lock.clone()).route_layer(lock.wait(support::DEADLINE)))
        .with_state(locks);
    for uri in ["/again/042", "/twice/42"] {
        let answer = send(&app, "POST", uri).await;
        assert_eq!((answer.status.as_u16(), answer.problem()), (500, "failed"), "{uri}");
    }
    for uri in ["/inside/042", "/other/42"] {
        assert_eq!(send(&app, "POST", uri).await.body, "42", "{uri}");
    }
    until("the release", || memory.is_empty()).await;
}
