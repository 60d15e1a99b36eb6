//! Shared by the tests of the layer: a store that can be hurt, requests, responses, and a probe of the lock.

#![cfg_attr(not(feature = "axum"), allow(dead_code, reason = "the tests that use the rest need axum"))]

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Extension, Router, body::Body};
use http::{HeaderMap, Method, Request, StatusCode, request::Parts};
use http_body_util::BodyExt;
use lock_runtime::{LockKey, LockManager, backend::Memory};
use lock_tower::{HeldLock, KeyRejection, LockLayer};
use tower::ServiceExt;

/// Longer than anything here takes; reached only if something would never end.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A private store, which can be hurt, and its manager.
pub(crate) fn store() -> (Memory, LockManager) {
    let memory = Memory::new();
    (memory.clone(), LockManager::new(memory))
}

/// Awaits an output that must come.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let start = Instant::now();
    let output = tokio::time::timeout(DEADLINE, future).await;
    // The timeout itself wakes the future once more; an output that needs this wake-up does not count.
    match output {
        Ok(output) if start.elapsed() < DEADLINE => output,
        _ => panic!("{what} did not come"),
    }
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    soon(what, async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("ASCII"))
    }

    /// The fragment of the problem's `type`.
    pub(crate) fn problem(&self) -> &str {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let rest = self.body.strip_prefix(r#"{"type":"https://docs.rs/lock-tower/#"#).expect(&self.body);
        &rest[..rest.find('"').expect("closed")]
    }
}

pub(crate) fn request(method: &str, uri: &str) -> Request<Body> {
    Request::builder()
        .method(method.parse::<Method>().expect("a method"))
        .uri(uri)
        .body(Body::empty())
        .expect("a request")
}

/// One request, with its whole answer.
pub(crate) async fn send(app: &Router, method: &str, uri: &str) -> Answer {
    soon(uri, async {
        let response = app.clone().oneshot(request(method, uri)).await.expect("infallible");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: String::from_utf8(bytes.to_vec()).expect("UTF-8"),
        }
    })
    .await
}

/// Answers with the key that the request holds.
#[allow(clippy::unused_async, reason = "handlers are async")]
pub(crate) async fn key(Extension(lock): Extension<HeldLock>) -> String {
    assert!(lock.is_valid());
    lock.key().to_string()
}

/// Records, when it is dropped, whether the lock was still held then.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) lock: HeldLock,
    pub(crate) dropped: Arc<AtomicBool>,
    pub(crate) dropped_under_lock: Arc<AtomicBool>,
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.dropped_under_lock.store(self.lock.is_valid(), Ordering::Release);
        self.dropped.store(true, Ordering::Release);
    }
}

/// The other end of a [`Probe`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Probed {
    dropped: Arc<AtomicBool>,
    dropped_under_lock: Arc<AtomicBool>,
}

impl Probed {
    pub(crate) fn watch(&self, lock: HeldLock) -> Probe {
        let Self { dropped, dropped_under_lock } = self.clone();
        Probe { lock, dropped, dropped_under_lock }
    }

    pub(crate) fn dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    pub(crate) fn dropped_under_lock(&self) -> bool {
        self.dropped_under_lock.load(Ordering::Acquire)
    }
}

/// The key of [`layer`].
pub(crate) const KEY: &str = "user:canary";

/// A layer with one key for all, so that a test needs no router.
pub(crate) fn layer(locks: &LockManager) -> LockLayer {
    LockLayer::with_key(locks.clone(), |_: &mut Parts| -> Result<_, KeyRejection> {
        Ok(Some(LockKey::new(KEY)?))
    })
}

/// A request for this layer.
pub(crate) fn post() -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = Method::POST;
    request
}

/// The lock of a request.
pub(crate) fn held(request: &Request<()>) -> HeldLock {
    request.extensions().get::<HeldLock>().expect("put there by the layer").clone()
}

/// A slow store, so that code that does not await the release is seen to hold the lock still.
pub(crate) fn slow_store() -> (Memory, LockManager) {
    let (memory, locks) = store();
    memory.set_delay(Duration::from_millis(5));
    (memory, locks)
}
