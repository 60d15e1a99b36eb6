//! The effect of the layer's options.

use std::{
    convert::Infallible,
    future::ready,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, routing::post};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Either, Empty, Full, StreamBody, channel::Channel};
use lock_runtime::{Limits, LockErrorKind, LockManager, lock_key};
use lock_tower::{HeldLock, HoldUntil, KeyRejection, LockLayer, LockRejection, MissingKey, OnLost, Protocol};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{
    self, Answer, DEADLINE, KEY, held, key, layer, request, send, slow_store, soon, store, until,
};

const MS: Duration = Duration::from_millis(1);

fn template(locks: &LockManager, template: &str) -> LockLayer {
    LockLayer::new(locks.clone(), template).expect("a template")
}

/// A request whose method is locked, as gRPC sends it.
fn rpc(timeout: Option<&str>) -> Request<()> {
    let mut request = support::post();
    request.headers_mut().insert(header::CONTENT_TYPE, "application/grpc+proto".parse().expect("a value"));
    if let Some(timeout) = timeout {
        request.headers_mut().insert("grpc-timeout", timeout.parse().expect("a value"));
    }
    request
}

async fn refused(layer: LockLayer, request: Request<()>) -> Answer {
    let service = layer
        .layer(service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())))));
    let (parts, body) = soon("the refusal", service.oneshot(request)).await.expect("infallible").into_parts();
    assert_eq!(http_body::Body::is_end_stream(&body), http_body::Body::size_hint(&body).exact() == Some(0));
    let body = body.collect().await.expect("a body").to_bytes();
    Answer {
        status: parts.status,
        headers: parts.headers,
        body: String::from_utf8(body.to_vec()).expect("UTF-8"),
    }
}

#[tokio::test]
async fn a_request_without_a_key_is_refused_or_runs_without_a_lock() {
    for (name, uri, rejected) in
        [("t:<header.x-tenant>", "/1", 400), ("t:<query.tenant>", "/1", 400), ("t:<tenant>", "/1", 500)]
    {
        let (memory, locks) = store();
        memory.set_failing(true);
        for (missing, expected) in [(MissingKey::Reject, rejected), (MissingKey::Skip, 200)] {
            let lock = template(&locks, name).missing_key(missing);
            let app = Router::new().route("/{id}", post(|| async { "free" }).route_layer(lock));
            assert_eq!(send(&app, "POST", uri).await.status, expected, "{name} {missing:?}");
        }
    }
}

#[tokio::test]
async fn what_is_there_and_wrong_is_refused_all_the_same() {
    let (memory, locks) = store();
    memory.set_failing(true);
    let skip = |name| template(&locks, name).missing_key(MissingKey::Skip);
    let app = Router::new()
        .route("/typed/{id}", post(key).route_layer(skip("u:<id:u64>")))
        .route("/query", post(key).route_layer(skip("q:<query.a>")))
        .nest("/{id}", Router::new().route("/twice/{id}", post(key).route_layer(skip("u:<id>"))));
    for (uri, status) in [
        ("/typed/x", 400),
        ("/typed/%ff", 400),
        ("/query?a=", 400),
        ("/query?a=1&a=2", 400),
        ("/query?a=1", 503),
        ("/1/twice/1", 500),
    ] {
        assert_eq!(send(&app, "POST", uri).await.status, status, "{uri}");
    }
    // Around the router no request has parameters, and none would be locked.
    let answer = skip("u:<id>").layer(app).oneshot(request("POST", "/typed/1")).await.expect("infallible");
    assert_eq!(answer.status(), 500);
}

#[tokio::test]
async fn the_layer_says_until_when_it_holds() {
    for (until, stream_held, text_held) in [
        (HoldUntil::Auto, true, false),
        (HoldUntil::ResponseHead, false, false),
        (HoldUntil::ResponseEnd, true, true),
    ] {
        for (streams, is_held) in [(true, stream_held), (false, text_held)] {
            let (memory, locks) = slow_store();
            let service = layer(&locks).hold_until(until).layer(service_fn(move |_: Request<()>| {
                let body = if streams {
                    let (mut events, body) = Channel::<Bytes>::new(2);
                    events.try_send(http_body::Frame::data("a".into())).expect("room");
                    Either::Left(body)
                } else {
                    Either::Right(Full::<Bytes>::from("a"))
                };
                ready(Ok::<_, Infallible>(Response::new(body)))
            }));
            let response = soon("the head", service.oneshot(support::post())).await.expect("infallible");
            assert_eq!(memory.len(), usize::from(is_held), "{until:?}, streams: {streams}");
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            assert_eq!(body, "a");
            assert!(memory.is_empty(), "{until:?}, streams: {streams}");
        }
    }
}

/// Servers do not poll the body of such a response, and would drop the lock in the background.
#[tokio::test]
async fn a_response_without_a_body_holds_to_its_head_only() {
    for (method, status, length) in [
        ("POST", StatusCode::NO_CONTENT, None),
        ("POST", StatusCode::NOT_MODIFIED, None),
        ("POST", StatusCode::SWITCHING_PROTOCOLS, None),
        ("CONNECT", StatusCode::OK, None),
        ("HEAD", StatusCode::OK, None),
        ("POST", StatusCode::OK, Some("0")),
    ] {
        for until in [HoldUntil::Auto, HoldUntil::ResponseEnd] {
            let (memory, locks) = slow_store();
            let method: http::Method = method.parse().expect("a method");
            let layer = layer(&locks).hold_until(until).methods([method.clone()]);
            let service = layer.layer(service_fn(move |_: Request<()>| {
                let (events, body) = Channel::<Bytes>::new(1);
                drop(events);
                let mut response = Response::new(body);
                *response.status_mut() = status;
                if let Some(length) = length {
                    response.headers_mut().insert(header::CONTENT_LENGTH, length.parse().expect("a value"));
                }
                ready(Ok::<_, Infallible>(response))
            }));
            let mut request = support::post();
            *request.method_mut() = method.clone();
            let _response = soon("the head", service.oneshot(request)).await.expect("infallible");
            assert!(memory.is_empty(), "{method} {status} {until:?}");
        }
    }
}

/// As from a proxy that copied the header: servers stop at the last byte and do not poll for the end.
#[tokio::test]
async fn the_last_byte_of_a_content_length_leaves_after_the_release() {
    let (memory, locks) = slow_store();
    let service = layer(&locks).layer(service_fn(|_: Request<()>| {
        let frames = ["ab", "c"].map(|text| Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(text))));
        let body = StreamBody::new(tonic::codegen::tokio_stream::iter(frames));
        let response = Response::builder().header(header::CONTENT_LENGTH, 3).body(body);
        ready(Ok::<_, Infallible>(response.expect("a response")))
    }));
    let mut body = service.oneshot(support::post()).await.expect("infallible").into_body();
    assert!(soon("a frame", body.frame()).await.is_some());
    assert_eq!(memory.len(), 1);
    let last = soon("a frame", body.frame()).await.expect("a frame").expect("no error");
    assert_eq!(last.into_data().expect("data"), "c");
    assert!(memory.is_empty());
    assert!(soon("the end", body.frame()).await.is_none());
}

#[tokio::test]
async fn work_is_finished_after_the_loss_if_that_is_asked_for() {
    for (on_lost, finished) in [(OnLost::Cancel, false), (OnLost::Finish, true)] {
        let (memory, locks) = store();
        let done = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&done);
        let service =
            layer(&locks).ttl(200 * MS).on_lost(on_lost).layer(service_fn(move |request: Request<()>| {
                let (lock, ends, memory) = (held(&request), Arc::clone(&ends), memory.clone());
                async move {
                    assert!(memory.lose(KEY));
                    lock.lost().await;
                    tokio::time::sleep(10 * MS).await;
                    ends.store(true, Ordering::Release);
                    Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
                }
            }));
        let response = soon("the end", service.oneshot(support::post())).await.expect("infallible");
        // The client is notified in either case.
        assert_eq!(response.status(), 500, "{on_lost:?}");
        assert_eq!(done.load(Ordering::Acquire), finished, "{on_lost:?}");
    }
}

#[tokio::test]
async fn a_stream_is_finished_after_the_loss_and_then_fails() {
    let (memory, locks) = store();
    let service =
        layer(&locks).ttl(200 * MS).on_lost(OnLost::Finish).layer(service_fn(|request: Request<()>| {
            let (lock, (mut events, body)) = (held(&request), Channel::<Bytes>::new(1));
            tokio::spawn(async move {
                lock.lost().await;
                for _ in 0..3 {
                    events.send_data(Bytes::from_static(b"event")).await.expect("listening");
                }
            });
            ready(Ok::<_, Infallible>(Response::new(body)))
        }));
    let mut body = service.oneshot(support::post()).await.expect("infallible").into_body();
    assert!(memory.lose(KEY));
    for _ in 0..3 {
        assert!(soon("an event", body.frame()).await.expect("a frame").is_ok());
    }
    let error = soon("the end", body.frame()).await.expect("a frame").expect_err("lost");
    let source = std::error::Error::source(&error).expect("the loss");
    let loss = source.downcast_ref::<lock_runtime::LockError>().expect("ours");
    assert_eq!((loss.kind(), loss.to_string()), (LockErrorKind::Lost, error.to_string()));
    assert!(soon("the end", body.frame()).await.is_none());
}

#[tokio::test]
async fn a_rejection_can_be_answered_otherwise() {
    let (memory, locks) = store();
    let lock = template(&locks, "user:<id:u64>").on_rejection(|rejection: &LockRejection| {
        assert!(!rejection.is_grpc());
        let mut response = match rejection.kind() {
            LockErrorKind::Contended => Response::new(Bytes::from_static(b"later")),
            _ => rejection.response(),
        };
        let told = rejection.error().map_or("none", |_| "one").parse().expect("a value");
        response.headers_mut().insert("x-error", told);
        response
    });
    let app = Router::new().route("/{id}", post(key).route_layer(lock));
    let _guard = locks.lock("user:1").acquire().await.expect("free");
    let answer = send(&app, "POST", "/1").await;
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, "later"));
    assert_eq!(answer.header("x-error"), Some("one"));
    let answer = send(&app, "POST", "/x").await;
    assert_eq!((answer.status.as_u16(), answer.problem()), (400, "invalid-key"));
    assert_eq!(answer.header("x-error"), Some("none"));
    memory.set_failing(true);
    assert_eq!(send(&app, "POST", "/2").await.problem(), "unavailable");
}

#[tokio::test]
async fn grpc_is_answered_in_headers_alone() {
    let (memory, locks) = store();
    let guard = locks.lock(KEY).acquire().await.expect("free");
    let answer = refused(layer(&locks), rpc(None)).await;
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, ""));
    assert_eq!(answer.header("content-type"), Some("application/grpc"));
    assert_eq!(answer.header("grpc-status"), Some("10"));
    assert_eq!(answer.header("grpc-message"), Some("Another request holds the lock"));
    assert!(answer.header("grpc-status-details-bin").is_some() && answer.header("retry-after").is_none());

    let answer = refused(layer(&locks).protocol(Protocol::Http), rpc(None)).await;
    assert_eq!((answer.status.as_u16(), answer.problem()), (409, "contended"));
    let answer = refused(layer(&locks).protocol(Protocol::Grpc), support::post()).await;
    assert_eq!((answer.status.as_u16(), answer.header("grpc-status")), (200, Some("10")));
    guard.release().await.expect("held");
    memory.set_failing(true);
    let answer = refused(layer(&locks), rpc(None)).await;
    assert_eq!(answer.header("grpc-status"), Some("14"));
    let answer = refused(template(&locks, "x:<query.x>"), rpc(None)).await;
    assert_eq!(answer.header("grpc-status"), Some("3"));
    assert_eq!(
        answer.header("grpc-message"),
        Some("The request gives no valid lock key: the query value `x` is missing")
    );
}

#[tokio::test]
async fn a_wait_ends_with_the_clients_patience() {
    let (memory, locks) = store();
    let guard = locks.lock(KEY).acquire().await.expect("free");
    for (wait, timeout, status) in [
        // The client's own deadline ended it.
        (DEADLINE, Some("50m"), "4"),
        (DEADLINE, Some("0m"), "4"),
        // The layer's did, or there was none.
        (50 * MS, Some("60S"), "10"),
        (50 * MS, Some("nonsense"), "10"),
        (50 * MS, None, "10"),
        (Duration::ZERO, Some("50m"), "10"),
    ] {
        let start = Instant::now();
        let answer = refused(layer(&locks).wait(wait), rpc(timeout)).await;
        assert_eq!(answer.header("grpc-status"), Some(status), "{wait:?} {timeout:?}");
        assert!(start.elapsed() < DEADLINE / 2, "{wait:?} {timeout:?}");
    }
    // In a plain request this header has no meaning.
    let mut plain = support::post();
    plain.headers_mut().insert("grpc-timeout", "0m".parse().expect("a value"));
    let answer = refused(layer(&locks).wait(50 * MS), plain).await;
    assert_eq!((answer.status.as_u16(), answer.problem()), (409, "contended"));
    guard.release().await.expect("held");
    assert!(memory.is_empty());
}

#[tokio::test]
async fn waiting_requests_are_bounded_in_number() {
    let (memory, locks) = store();
    let mut limits = Limits::default();
    limits.waiters_per_key = 2;
    let locks = locks.with_limits(limits);
    let guard = locks.lock(KEY).acquire().await.expect("free");
    let service = layer(&locks)
        .wait(DEADLINE)
        .layer(service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())))));
    let mut waiting = pin!(async {
        tokio::join!(service.clone().oneshot(support::post()), service.clone().oneshot(support::post()))
    });
    tokio::time::timeout(20 * MS, &mut waiting).await.expect_err("both wait");
    let refused = soon("the refusal", service.clone().oneshot(support::post())).await.expect("infallible");
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
    guard.release().await.expect("held");
    let (first, second) = soon("both", waiting).await;
    assert_eq!(
        (first.expect("infallible").status(), second.expect("infallible").status()),
        (StatusCode::OK, StatusCode::OK)
    );
    until("the end", || memory.is_empty()).await;
}

#[tokio::test]
async fn a_lock_stays_held_for_its_least_time_although_the_request_is_answered() {
    let (memory, locks) = store();
    let least = 300 * MS;
    let lock = template(&locks, "user:<id>").hold_at_least(least);
    let app = Router::new().route("/{id}", post(key).route_layer(lock));
    let start = Instant::now();
    assert_eq!(send(&app, "POST", "/1").await.status, 200);
    let answered = start.elapsed();
    assert!(answered < least, "{answered:?}");
    assert_eq!(send(&app, "POST", "/1").await.status, 409);
    assert_eq!(send(&app, "POST", "/2").await.status, 200);
    until("the end of the least time", || memory.is_empty()).await;
    assert!(start.elapsed() >= least);
    assert_eq!(send(&app, "POST", "/1").await.status, 200);
}

#[tokio::test]
async fn a_layer_inside_of_one_of_the_same_key_enters_again_where_it_may() {
    for (reentrant, status) in [(false, 500), (true, 200)] {
        let (memory, locks) = store();
        // Through a separate manager: the store counts, not the manager.
        let inner =
            template(&LockManager::new(memory.clone()), "user:<id>").wait(DEADLINE).reentrant(reentrant);
        let outer = template(&locks, "user:<id>");
        let app = Router::new().route("/{id}", post(key).route_layer(inner).route_layer(outer));
        let answer = send(&app, "POST", "/1").await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(memory.is_empty());
    }
}

#[tokio::test]
async fn a_closure_needs_no_types() {
    let (_memory, locks) = store();
    let lock = LockLayer::with_key_fn(locks, |parts| {
        let Some(tenant) = parts.headers.get("x-tenant") else { return Ok(None) };
        let tenant = tenant.to_str().map_err(|_| KeyRejection::bad_request("not visible ASCII"))?;
        Ok(Some(lock_key!("tenant:<tenant>")?))
    });
    let held =
        |lock: Option<HeldLock>| async move { lock.map_or("none".into(), |lock| lock.key().to_string()) };
    let app = Router::new().route("/", post(held).route_layer(lock));
    assert_eq!(send(&app, "POST", "/").await.body, "none");
    let mut request = request("POST", "/");
    request.headers_mut().insert("x-tenant", "a b".parse().expect("a value"));
    let body = app.oneshot(request).await.expect("infallible").into_body();
    assert_eq!(body.collect().await.expect("a body").to_bytes(), "tenant:a%20b");
}
