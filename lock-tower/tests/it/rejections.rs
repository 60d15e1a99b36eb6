//! Responses to requests that do not get their lock.

use std::{
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, routing::post};
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt;
use lock_runtime::{Limits, LockError, LockManager};
use lock_tower::LockLayer;
use tower::ServiceExt;

use crate::support::{DEADLINE, key, request, send, soon, store};

fn app(locks: &LockManager, change: impl FnOnce(LockLayer) -> LockLayer) -> Router {
    let lock = change(LockLayer::new(locks.clone(), "user:<id>").expect("a template"));
    Router::new().route("/{id}", post(key).route_layer(lock))
}

#[tokio::test]
async fn a_busy_lock_is_409_at_once_with_advice() {
    let (memory, locks) = store();
    // The manager would wait; the layer does not.
    let app = app(&locks.clone().wait(2 * DEADLINE), |lock| lock);
    let guard = locks.lock("user:canary").ttl(Duration::from_secs(30)).acquire().await.expect("free");
    let answer = soon("the refusal", send(&app, "POST", "/canary")).await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert_eq!(
        answer.body,
        r#"{"type":"https://docs.rs/lock-tower/#contended","title":"Another request holds the lock","status":409}"#
    );
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    // Not the 30 s of a renewed lease.
    assert_eq!(answer.header("retry-after"), Some("1"));
    // Another key is free.
    assert_eq!(send(&app, "POST", "/other").await.status, 200);

    guard.release().await.expect("held");
    let answer = send(&app, "POST", "/canary").await;
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, "user:canary"));
    assert!(memory.is_empty());
}

#[tokio::test]
async fn the_advice_is_the_layers_else_the_managers_and_the_rest_of_a_lease_that_is_not_renewed() {
    let (_memory, locks) = store();
    let locks = locks.retry_after(Duration::from_millis(2500));
    let (by_manager, by_layer) =
        (app(&locks, |lock| lock), app(&locks, |lock| lock.retry_after(Duration::from_secs(5))));
    let guard = locks.lock("user:1").acquire().await.expect("free");
    for (app, advice) in [(&by_manager, "3"), (&by_layer, "5")] {
        assert_eq!(send(app, "POST", "/1").await.header("retry-after"), Some(advice));
    }
    guard.release().await.expect("held");
    let guard = locks.lock("user:1").auto_renew(false).acquire().await.expect("free");
    let answer = send(&by_layer, "POST", "/1").await;
    // 30 s less the margins, and less the time of the test so far.
    let seconds: u64 = answer.header("retry-after").expect("given").parse().expect("whole seconds");
    assert!((10..=30).contains(&seconds), "{seconds}");
    assert!(Duration::from_secs(seconds) >= guard.remaining(), "rounded up");
    guard.release().await.expect("held");
}

#[tokio::test]
async fn retry_after_is_never_zero() {
    let (_memory, locks) = store();
    let app = app(&locks, |lock| lock);
    let short = locks.lock("user:1").ttl(Duration::from_millis(900)).auto_renew(false);
    let guard = short.acquire().await.expect("free");
    assert_eq!(send(&app, "POST", "/1").await.header("retry-after"), Some("1"));
    drop(guard);
}

#[tokio::test]
async fn a_wait_is_waited_for_and_ends() {
    let (_memory, locks) = store();
    let guard = locks.lock("user:1").acquire().await.expect("free");
    let short = app(&locks, |lock| lock.wait(Duration::from_millis(50)));
    let answer = send(&short, "POST", "/1").await;
    assert_eq!((answer.status.as_u16(), answer.problem()), (409, "contended"));

    let long = app(&locks, |lock| lock.wait(DEADLINE));
    let mut waiting = pin!(send(&long, "POST", "/1"));
    // A request that did not wait would be ready.
    tokio::time::timeout(Duration::from_millis(20), &mut waiting).await.expect_err("waits");
    guard.release().await.expect("held");
    assert_eq!(waiting.await.status, 200);
}

#[tokio::test]
async fn the_status_of_contention_can_be_chosen() {
    let (_memory, locks) = store();
    let app = app(&locks, |lock| lock.contended_status(StatusCode::LOCKED));
    let _guard = locks.lock("user:1").acquire().await.expect("free");
    let answer = send(&app, "POST", "/1").await;
    assert_eq!((answer.status.as_u16(), answer.problem()), (423, "contended"));
    assert!(answer.body.contains(r#""status":423"#), "{}", answer.body);
}

#[tokio::test]
async fn a_failing_store_is_503_and_never_contention() {
    let (memory, locks) = store();
    let app = app(&locks, |lock| lock);
    memory.set_failing(true);
    let answer = send(&app, "POST", "/canary").await;
    assert_eq!((answer.status.as_u16(), answer.problem()), (503, "unavailable"));
    assert_eq!(answer.header("retry-after"), Some("1"));
    for secret in ["canary", "user:", "set_failing", "in-process"] {
        assert!(!answer.body.contains(secret), "{}", answer.body);
    }
    memory.set_failing(false);
    assert_eq!(send(&app, "POST", "/canary").await.status, 200);
}

/// The error names the holder for the log; no answer does, in either protocol.
#[tokio::test]
async fn no_client_learns_who_holds_the_lock() {
    let (memory, locks) = store();
    let seen = Arc::new(Mutex::new(None));
    let record = Arc::clone(&seen);
    let app = app(&locks, move |lock| {
        lock.on_rejection(move |rejection| {
            let holder = rejection.error().and_then(LockError::holder).cloned();
            *record.lock().expect("not poisoned") = holder;
            rejection.response()
        })
    });
    // Another client, so that the answer of the store states the label.
    let theirs = LockManager::new(memory);
    let guard = theirs.lock("user:canary").label("secret job").acquire().await.expect("free");
    for content_type in ["application/json", "application/grpc"] {
        let mut request = request("POST", "/canary");
        request.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
        let response = app.clone().oneshot(request).await.expect("infallible");
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        let holder = seen.lock().expect("not poisoned").take().expect("the store has stated it");
        assert_eq!(holder.label(), Some("secret job"));
        let client = holder.client().expect("this process").to_owned();
        let (_, host) = client.split_once('@').expect("a host");
        let bytes = parts.headers.iter().flat_map(|(_, value)| value.as_bytes()).chain(&body);
        let sent = String::from_utf8_lossy(&bytes.copied().collect::<Vec<_>>()).into_owned();
        let token = guard.fencing_token().get().to_string();
        for secret in ["secret", "canary", &client, host, &token] {
            assert!(!sent.contains(secret), "{content_type}: {secret} in {sent}");
        }
    }
}

#[tokio::test]
async fn limits_and_shutdown_are_503() {
    let (_memory, locks) = store();
    let mut none = Limits::default();
    none.held = 0;
    let answer = send(&app(&locks.clone().with_limits(none), |lock| lock), "POST", "/1").await;
    assert_eq!((answer.status.as_u16(), answer.problem()), (503, "unavailable"));

    let app = app(&locks, |lock| lock);
    assert_eq!(send(&app, "POST", "/1").await.status, 200);
    locks.shutdown().await;
    let answer = send(&app, "POST", "/1").await;
    assert_eq!((answer.status.as_u16(), answer.problem()), (503, "unavailable"));
    assert_eq!(answer.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn bad_options_are_500() {
    let (_memory, locks) = store();
    for change in [(|lock| lock.ttl(Duration::from_millis(1))) as fn(LockLayer) -> LockLayer, |lock| {
        lock.max_hold(Duration::ZERO)
    }] {
        let answer = send(&app(&locks, change), "POST", "/canary").await;
        assert_eq!((answer.status.as_u16(), answer.problem()), (500, "failed"));
        assert_eq!(answer.header("retry-after"), None);
        assert!(!answer.body.contains("canary"));
    }
}
