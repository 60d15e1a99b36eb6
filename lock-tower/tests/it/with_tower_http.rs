//! The layer in one `ServiceBuilder` with layers of tower-http that respond in its place.

use std::{future::pending, time::Duration};

use axum::{Router, body::Body, middleware::ResponseAxumBodyLayer, response::IntoResponse, routing::post};
use http::{Request, StatusCode, header};
use lock_runtime::LockManager;
use lock_tower::LockLayer;
use tower::{ServiceBuilder, ServiceExt, util::option_layer};
use tower_http::{
    auth::AsyncRequireAuthorizationLayer, cors::CorsLayer, timeout::TimeoutLayer,
    validate_request::ValidateRequestHeaderLayer,
};

use crate::support::{DEADLINE, key, request, soon, store, until};

fn app(locks: &LockManager, timeout: Duration) -> Router {
    let lock = LockLayer::new(locks.clone(), "user:<id>").expect("a template");
    #[expect(deprecated, reason = "the simplest authorisation there is")]
    let authorised = ValidateRequestHeaderLayer::bearer("canary");
    let outside = ServiceBuilder::new()
        .layer(CorsLayer::permissive())
        .layer(authorised)
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, timeout))
        .layer(lock);
    Router::new()
        .route("/{id}", post(key).layer(outside.clone()))
        .route("/hangs/{id}", post(pending::<()>).layer(outside))
}

fn authorised(uri: &str) -> Request<Body> {
    let mut request = request("POST", uri);
    request.headers_mut().insert(header::AUTHORIZATION, "Bearer canary".parse().expect("a value"));
    request
}

#[tokio::test]
async fn what_is_answered_outside_of_the_lock_takes_none() {
    let (memory, locks) = store();
    memory.set_failing(true);
    let app = app(&locks, DEADLINE);
    let refused = app.clone().oneshot(request("POST", "/1")).await.expect("infallible");
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let mut preflight = request("OPTIONS", "/1");
    preflight.headers_mut().insert(header::ORIGIN, "http://localhost".parse().expect("a value"));
    let preflight = app.clone().oneshot(preflight).await.expect("infallible");
    assert_eq!(preflight.status(), StatusCode::OK);
    assert!(preflight.headers().contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
    // With the right token the request would take a lock.
    let asked = app.oneshot(authorised("/1")).await.expect("infallible");
    assert_eq!(asked.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(asked.headers().contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
}

#[tokio::test]
async fn a_timeout_outside_ends_the_handler_and_the_lock() {
    let (memory, locks) = store();
    let app = app(&locks, Duration::from_millis(50));
    let answer = soon("the timeout", app.clone().oneshot(authorised("/hangs/1"))).await.expect("infallible");
    assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
    until("the release in the background", || memory.is_empty()).await;
    assert_eq!(app.oneshot(authorised("/1")).await.expect("infallible").status(), StatusCode::OK);
}

#[tokio::test]
async fn what_answers_with_the_response_of_axum_gets_that_from_the_lock_too() {
    let (_memory, locks) = store();
    let lock = LockLayer::new(locks, "user:<id>").expect("a template");
    let authorise = AsyncRequireAuthorizationLayer::new(async |request: Request<Body>| {
        let is_known = request.headers().contains_key(header::AUTHORIZATION);
        if is_known { Ok(request) } else { Err(StatusCode::UNAUTHORIZED.into_response()) }
    });
    let stack = ServiceBuilder::new().layer(authorise).layer(ResponseAxumBodyLayer).layer(lock);
    let app = Router::new().route("/{id}", post(key).layer(stack));
    for (request, status) in [(request("POST", "/1"), 401), (authorised("/1"), 200)] {
        assert_eq!(app.clone().oneshot(request).await.expect("infallible").status(), status);
    }
}

/// The stack is that of axum-extra's `option_layer`.
#[tokio::test]
async fn a_lock_may_be_optional() {
    let (memory, locks) = store();
    memory.set_failing(true);
    let lock = LockLayer::new(locks, "user:<id>").expect("a template");
    for (lock, status) in [(Some(lock), 503), (None, 200)] {
        let lock = option_layer(lock.map(|lock| (ResponseAxumBodyLayer, lock)));
        let app = Router::new().route("/{id}", post(|| async {}).route_layer(lock));
        assert_eq!(app.oneshot(request("POST", "/1")).await.expect("infallible").status(), status);
    }
}
