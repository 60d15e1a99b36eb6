//! A store that never answers a release must not keep a response forever.

use std::{convert::Infallible, future::pending, sync::Arc, thread, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use lock_runtime::{
    LockError, LockKey, LockManager,
    backend::{
        Acquire, Acquired, Backend, BoxFuture, Capabilities, Grant, HandOver, Held, Lease, LeaseId, Memory,
        Releasable, Released, Renew,
    },
};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{held, layer, post, soon};

#[derive(Debug)]
struct Silent(Memory);

#[derive(Debug)]
struct SilentLease(Arc<dyn Lease>);

impl Backend for Silent {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn acquire(&self, request: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>> {
        let acquired = self.0.acquire(request);
        Box::pin(async move {
            Ok(match acquired.await? {
                Acquired::Granted(Grant { token, held: Held::Lease { lease, valid_until, .. }, .. }) => {
                    let held = Held::lease(Arc::new(SilentLease(lease)), valid_until);
                    Acquired::Granted(Grant::new(token, held))
                }
                other => other,
            })
        })
    }

    fn renewal(&self) -> Option<&dyn Renew> {
        self.0.renewal()
    }
}

impl Releasable for SilentLease {
    fn key(&self) -> &LockKey {
        self.0.key()
    }

    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(pending())
    }
}

impl Lease for SilentLease {
    fn id(&self) -> &LeaseId {
        self.0.id()
    }

    fn may_hand_over(&self) -> HandOver {
        self.0.may_hand_over()
    }
}

/// The answer to a request whose handler, if it `loses_its_lock`, blocks its thread until then: it cannot be stopped.
async fn answer(loses_its_lock: bool) -> (u16, String) {
    let ttl = if loses_its_lock { Duration::from_millis(100) } else { Duration::from_secs(30) };
    let locks = LockManager::new(Silent(Memory::new())).ttl(ttl).auto_renew(false);
    let service = layer(&locks).layer(service_fn(move |request: Request<()>| {
        let lock = held(&request);
        async move {
            while loses_its_lock && lock.is_valid() {
                thread::sleep(Duration::from_millis(1));
            }
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
        }
    }));
    let response = soon("the answer", service.oneshot(post())).await.expect("infallible");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (status, String::from_utf8(body.to_vec()).expect("UTF-8"))
}

#[tokio::test]
async fn the_response_goes_without_the_release_after_a_while() {
    assert_eq!(answer(false).await, (200, "done".into()));
}

#[tokio::test]
async fn the_response_to_a_lost_lock_is_withheld_at_once() {
    let polled_often = async {
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
    };
    let (status, body) = tokio::select! {
        biased;
        answer = answer(true) => answer,
        () = polled_often => panic!("the loss waits for a store that is silent"),
    };
    assert_eq!(status, 500, "{body}");
    assert!(body.contains("#lost"), "{body}");
}
