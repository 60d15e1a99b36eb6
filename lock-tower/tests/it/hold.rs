//! The work under the lock of a request, and the events that end it.

use std::{
    convert::Infallible,
    future::{Future, pending, ready},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use lock_runtime::{FencingToken, LockError, LockErrorKind, LockManager, distributed_lock};
use lock_tower::{KeyRejection, LockLayer, LockService, ResponseBody};
use tokio::sync::Notify;
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit, service_fn};

use crate::support::{self, DEADLINE, KEY, Probed, held, layer, post, soon, store, until};

type Answered = Result<Response<Full<Bytes>>, Infallible>;

/// A service that signals its start, and then does the `work`.
fn working<W, F>(
    work: W,
) -> (
    Arc<Notify>,
    Probed,
    impl Service<Request<()>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send> + Clone,
)
where
    W: Fn() -> F + Clone,
    F: Future<Output = Answered> + Send,
{
    let (started, probed) = (Arc::new(Notify::new()), Probed::default());
    let (start, probe) = (Arc::clone(&started), probed.clone());
    let service = service_fn(move |request: Request<()>| {
        let (probe, start, work) = (probe.watch(held(&request)), Arc::clone(&start), work());
        async move {
            let _probe = probe;
            start.notify_one();
            work.await
        }
    });
    (started, probed, service)
}

#[expect(clippy::unnecessary_wraps, reason = "a service answers with a `Result`")]
fn done() -> Answered {
    Ok(Response::new(Full::from("done")))
}

async fn text(response: Response<ResponseBody<Full<Bytes>>>) -> (u16, String) {
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (status, String::from_utf8(bytes.to_vec()).expect("UTF-8"))
}

fn says_lost((status, body): &(u16, String)) {
    assert_eq!(*status, 500, "{body}");
    assert!(body.contains("#lost") && !body.contains("canary"), "{body}");
}

#[tokio::test]
async fn a_lease_that_is_lost_drops_the_handler_and_is_500() {
    let (memory, locks) = store();
    let (started, probed, service) = working(pending);
    let service = layer(&locks).ttl(Duration::from_millis(200)).layer(service);
    let taking = async {
        started.notified().await;
        assert!(memory.lose(KEY));
    };
    let (response, ()) = soon("the loss", async { tokio::join!(service.oneshot(post()), taking) }).await;
    says_lost(&text(response.expect("infallible")).await);
    assert!(probed.dropped());
}

#[tokio::test]
async fn a_hold_ends_at_its_limit_though_it_is_renewed() {
    let (memory, locks) = store();
    let (_, probed, service) = working(pending);
    let service = layer(&locks).max_hold(Duration::from_millis(150)).layer(service);
    let response = soon("the limit", service.oneshot(post())).await.expect("infallible");
    assert_eq!(response.headers().get("retry-after"), None, "the next attempt takes just as long");
    says_lost(&text(response).await);
    // In the store the lock is ours until then, and free before the client is notified.
    assert!(probed.dropped());
    until("the lock is free", || memory.is_empty()).await;
}

#[tokio::test]
async fn an_answer_that_comes_after_the_loss_is_withheld() {
    for failing in [false, true] {
        let (memory, locks) = store();
        let inner = service_fn(move |request: Request<()>| {
            let lock = held(&request);
            // Never gives the layer a chance to end it, like a handler that computes.
            while lock.is_valid() {
                std::thread::sleep(Duration::from_millis(1));
            }
            // The store does not report the loss either.
            memory.set_failing(failing);
            ready(done())
        });
        let service = layer(&locks).ttl(Duration::from_millis(100)).auto_renew(false).layer(inner);
        says_lost(&text(service.oneshot(post()).await.expect("infallible")).await);
    }
}

#[tokio::test]
async fn an_answer_is_withheld_when_the_store_had_given_the_lock_away() {
    let (memory, locks) = store();
    let service = layer(&locks).layer(service_fn(move |_: Request<()>| {
        assert!(memory.lose(KEY));
        ready(done())
    }));
    says_lost(&text(service.oneshot(post()).await.expect("infallible")).await);
}

#[tokio::test]
async fn a_long_handler_keeps_its_lock_by_renewal() {
    let (_memory, locks) = store();
    let service = layer(&locks).ttl(Duration::from_secs(3)).layer(service_fn(|request: Request<()>| {
        let lock = held(&request);
        async move {
            let mut left = lock.remaining();
            // Only a renewal makes it grow.
            while lock.remaining() <= left {
                left = lock.remaining();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            done()
        }
    }));
    let response = soon("a renewal", service.oneshot(post())).await.expect("infallible");
    assert_eq!(text(response).await, (200, "done".into()));
}

#[tokio::test]
async fn a_handler_that_asks_for_the_lock_of_its_request_is_told_so_or_enters_again() {
    let (memory, locks) = store();
    // Through the layer's manager, and through a separate one.
    for inner in [locks.clone(), LockManager::new(memory)] {
        let service = layer(&locks).layer(service_fn(move |request: Request<()>| {
            let (inner, ours) = (inner.clone(), held(&request));
            let in_call = lock_runtime::current();
            async move {
                for held in [in_call, lock_runtime::current()] {
                    assert_eq!(held.expect("held").fencing_token(), ours.fencing_token());
                }
                let lock = inner.lock(KEY);
                for error in [
                    lock.clone().wait(DEADLINE).acquire().await.expect_err("its own"),
                    annotated(&inner).await.expect_err("its own"),
                ] {
                    assert_eq!(error.kind(), LockErrorKind::WouldDeadlock, "{error}");
                }
                let again = lock.reentrant(true).acquire().await.expect("entered");
                assert_eq!(again.fencing_token(), ours.fencing_token());
                again.release().await.expect("held");
                assert_eq!(annotated_to_enter_again(&inner).await.expect("entered"), ours.fencing_token());
                assert!(ours.is_valid());
                done()
            }
        }));
        assert_eq!(text(service.oneshot(post()).await.expect("infallible")).await, (200, "done".into()));
    }
    assert!(lock_runtime::current().is_none());
}

#[distributed_lock(key = "user:canary", manager = locks, wait = DEADLINE)]
async fn annotated(locks: &LockManager) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:canary", manager = locks, wait = DEADLINE, reentrant = true, guard = held)]
async fn annotated_to_enter_again(locks: &LockManager) -> Result<FencingToken, LockError> {
    Ok(held.fencing_token())
}

#[tokio::test]
async fn a_request_that_is_dropped_ends_under_the_lock_and_then_frees_it() {
    let (memory, locks) = store();
    let (started, probed, service) = working(pending);
    let mut request = Box::pin(layer(&locks).layer(service).oneshot(post()));
    soon("the start", async {
        tokio::select! {
            _ = &mut request => unreachable!("pending"),
            () = started.notified() => {}
        }
    })
    .await;
    assert_eq!(memory.len(), 1);
    drop(request);
    assert!(probed.dropped() && probed.dropped_under_lock());
    until("the release in the background", || memory.is_empty()).await;
}

#[tokio::test]
async fn a_request_that_is_dropped_while_it_asks_for_its_lock_leaves_nothing() {
    let (memory, locks) = support::slow_store();
    let (_, probed, service) = working(pending);
    let service = layer(&locks).wait(DEADLINE).layer(service);
    for millis in 0..12 {
        let request = service.clone().oneshot(post());
        // Before, at and after the grant, which takes 5 ms.
        let _ = tokio::time::timeout(Duration::from_millis(millis), request).await;
        until("nothing", || memory.is_empty()).await;
    }
    assert!(probed.dropped(), "one at least got as far as the handler");
}

#[tokio::test]
async fn a_handler_that_panics_frees_its_lock() {
    let (memory, locks) = store();
    let (_, probed, service) = working(|| async { panic!("on purpose") });
    let service = layer(&locks).layer(service);
    let request = service.clone().oneshot(post());
    assert!(tokio::spawn(request).await.expect_err("panics").is_panic());
    assert!(probed.dropped_under_lock());
    until("the release in the background", || memory.is_empty()).await;

    // The same for one that panics when it is called, before there is a future.
    let service = layer(&locks)
        .layer(service_fn(|_: Request<()>| -> std::future::Ready<Answered> { panic!("on purpose") }));
    assert!(tokio::spawn(service.oneshot(post())).await.expect_err("panics").is_panic());
    until("the release in the background", || memory.is_empty()).await;
}

#[tokio::test]
async fn what_was_polled_ready_is_called() {
    let (_memory, locks) = store();
    // Panics when it is called without having been ready.
    let limited = ConcurrencyLimit::new(service_fn(|_: Request<()>| ready(done())), 1);
    let mut service = layer(&locks).layer(limited);
    for _ in 0..3 {
        let response =
            soon("an answer", async { service.ready().await.expect("infallible").call(post()).await });
        assert_eq!(text(response.await.expect("infallible")).await, (200, "done".into()));
    }
}

/// The contract of tower: no call without readiness, and the readiness of the very service that is called.
#[tokio::test]
async fn readiness_is_that_of_the_inner_service() {
    let (memory, locks) = store();
    let (mut service, mut handle) =
        tower_test::mock::spawn_layer::<Request<()>, Response<Full<Bytes>>, _>(layer(&locks));
    handle.allow(0);
    assert!(service.poll_ready().is_pending());
    handle.allow(1);
    assert!(matches!(service.poll_ready(), Poll::Ready(Ok(()))));
    // It has one permit, which the call takes with it.
    let answer = tokio::spawn(service.call(post()));
    let (request, respond) = soon("the call", handle.next_request()).await.expect("called");
    assert!(held(&request).is_valid() && memory.len() == 1);
    assert!(service.poll_ready().is_pending());
    respond.send_response(Response::new(Full::from("done")));
    assert_eq!(text(answer.await.expect("no panic").expect("answered")).await, (200, "done".into()));
    assert!(memory.is_empty());

    // The inner service's errors stay errors, in readiness and in the call.
    handle.allow(1);
    assert!(matches!(service.poll_ready(), Poll::Ready(Ok(()))));
    let answer = tokio::spawn(service.call(post()));
    let (_, respond) = soon("the call", handle.next_request()).await.expect("called");
    respond.send_error("broken on purpose");
    let error = answer.await.expect("no panic").expect_err("fails");
    assert!(error.to_string().contains("broken on purpose"), "{error}");
    assert!(memory.is_empty());
    handle.send_error("not ready on purpose");
    assert!(matches!(service.poll_ready(), Poll::Ready(Err(_))));
}

#[tokio::test]
async fn what_is_refused_gives_back_what_was_reserved_for_it() {
    let (memory, locks) = store();
    let refuses = |_: &mut http::request::Parts| Err(KeyRejection::bad_request("no"));
    let no_key = LockLayer::with_key(locks.clone(), refuses);
    let guard = locks.lock(KEY).acquire().await.expect("free");
    for layer in [no_key, layer(&locks)] {
        let limited = ConcurrencyLimit::new(service_fn(|_: Request<()>| ready(done())), 1);
        let mut other = limited.clone();
        let mut service = layer.layer(limited);
        let status =
            service.ready().await.expect("infallible").call(post()).await.expect("infallible").status();
        assert!(status.is_client_error(), "{status}");
        // `service` lives on, as it does on an idle connection.
        soon("the other's turn", other.ready()).await.expect("infallible");
        drop(service);
    }
    guard.release().await.expect("held");
    assert!(memory.is_empty());
}

#[tokio::test]
async fn the_handler_knows_its_lock() {
    let (_memory, locks) = store();
    let mut last = None;
    for _ in 0..3 {
        let inner = service_fn(|request: Request<()>| {
            let lock = held(&request);
            assert!(lock.is_valid() && lock.key() == KEY);
            let text = lock.fencing_token().get().to_string();
            ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(text))))
        });
        let (_, token) = text(layer(&locks).layer(inner).oneshot(post()).await.expect("infallible")).await;
        let token = Some(token.parse::<u64>().expect("a number"));
        assert!(token > last);
        last = token;
    }
}

#[tokio::test]
async fn a_hold_ends_after_five_minutes_unless_said_otherwise() {
    let (_memory, locks) = store();
    let locks = locks.ttl(Duration::from_hours(1)).max_hold(Duration::from_hours(2));
    for (layer, minutes) in [(layer(&locks), 5), (layer(&locks).max_hold(Duration::from_mins(9)), 9)] {
        let inner = service_fn(move |request: Request<()>| {
            let remaining = held(&request).remaining();
            assert!(remaining <= Duration::from_mins(minutes), "{remaining:?}");
            assert!(remaining > Duration::from_mins(minutes - 1), "{remaining:?}");
            ready(done())
        });
        assert_eq!(layer.layer(inner).oneshot(post()).await.expect("infallible").status(), 200);
    }
}

#[tokio::test]
async fn one_key_is_never_held_twice() {
    let (_memory, locks) = store();
    let inside = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let service = layer(&locks).wait(DEADLINE).layer(service_fn(move |_: Request<()>| {
        let inside = Arc::clone(&inside);
        async move {
            assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::AcqRel), 0);
            tokio::task::yield_now().await;
            assert_eq!(inside.fetch_sub(1, std::sync::atomic::Ordering::AcqRel), 1);
            done()
        }
    }));
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..100 {
        requests.spawn(service.clone().oneshot(post()));
    }
    while let Some(answer) = soon("an answer", requests.join_next()).await {
        assert_eq!(answer.expect("no panic").expect("infallible").status(), 200);
    }
}

/// Compiling is the test: the layer's types are as `Send` and `Sync` as the types that they wrap.
#[test]
fn types_are_as_send_and_sync_as_the_inner_ones() {
    fn send_and_sync<T: Send + Sync>(_: &T) {}
    fn send_and_sync_type<T: Send + Sync + 'static>() {}
    fn check(locks: &LockManager) {
        let inner = service_fn(|_: Request<()>| ready(done()));
        let mut service = layer(locks).layer(inner);
        send_and_sync(&service);
        send_and_sync(&service.call(post()));
    }
    let _ = check;
    send_and_sync_type::<LockLayer>();
    send_and_sync_type::<LockService<()>>();
    send_and_sync_type::<KeyRejection>();
    send_and_sync_type::<ResponseBody<Empty<Bytes>>>();
}
