//! Streamed responses: how long the lock is held.

use std::{
    collections::VecDeque,
    convert::Infallible,
    error::Error,
    fmt,
    future::{Future, poll_fn, ready},
    pin::{Pin, pin},
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Either, Empty, Full, channel::Channel};
use lock_runtime::{LockError, LockErrorKind, LockManager};
use lock_tower::{HeldLock, ResponseBody, ResponseBodyError};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{KEY, Probe, Probed, held, layer, post, slow_store, soon, store, until};

type BoxError = Box<dyn Error + Send + Sync>;

/// A body that yields these frames, and panics when it is polled after its end.
struct Frames<E = Infallible> {
    left: VecDeque<Result<Frame<Bytes>, E>>,
    /// Whether it knows its end once no frame is left. Otherwise it is polled once more, and ends then.
    knows_its_end: bool,
    ended: bool,
    pending: bool,
    probe: Option<Probe>,
}

impl<E> Frames<E> {
    fn new(frames: impl IntoIterator<Item = Result<Frame<Bytes>, E>>) -> Self {
        let left = frames.into_iter().collect();
        Self { left, knows_its_end: false, ended: false, pending: true, probe: None }
    }

    fn knowing_its_end(mut self) -> Self {
        self.knows_its_end = true;
        self
    }

    fn watched_by(mut self, probe: Probe) -> Self {
        self.probe = Some(probe);
        self
    }
}

fn data(text: &'static str) -> Frame<Bytes> {
    Frame::data(Bytes::from_static(text.as_bytes()))
}

fn trailers() -> Frame<Bytes> {
    Frame::trailers(HeaderMap::from_iter([(http::header::ETAG, "x".parse().expect("a value"))]))
}

impl<E: Unpin> Body for Frames<E> {
    type Data = Bytes;
    type Error = E;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, E>>> {
        assert!(!self.ended && !self.is_end_stream(), "polled after its end");
        // Every frame is pending once.
        self.pending = !self.pending;
        if !self.pending {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let frame = self.left.pop_front();
        self.ended = !matches!(&frame, Some(Ok(frame)) if !frame.is_trailers());
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.knows_its_end && self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        hint.set_lower(1);
        hint.set_upper(1000);
        hint
    }
}

async fn respond<B>(locks: &LockManager, make: impl Fn(HeldLock) -> B + Clone) -> Response<ResponseBody<B>>
where
    B: Body<Data = Bytes>,
{
    let inner = service_fn(move |request: Request<()>| {
        ready(Ok::<_, Infallible>(Response::new(make(held(&request)))))
    });
    soon("the head", layer(locks).layer(inner).oneshot(post())).await.expect("infallible")
}

async fn next<B>(body: &mut ResponseBody<B>) -> Option<Result<Frame<Bytes>, ResponseBodyError>>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    soon("a frame", body.frame()).await
}

#[tokio::test]
async fn known_size_is_released_before_the_head_leaves() {
    let (memory, locks) = slow_store();
    let response = respond(&locks, |_| Full::new(Bytes::from_static(b"done"))).await;
    assert!(memory.is_empty());
    assert_eq!(response.body().size_hint().exact(), Some(4));
    assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), "done");

    let response = respond(&locks, |_| Empty::<Bytes>::new()).await;
    assert!(memory.is_empty() && response.body().is_end_stream());

    // This body has nothing left to send, although it does not know its size.
    let response = respond(&locks, |_| Frames::<Infallible>::new([]).knowing_its_end()).await;
    assert!(memory.is_empty() && response.body().is_end_stream());
}

#[tokio::test]
async fn an_inner_error_is_passed_on_as_it_is_after_the_release() {
    #[derive(Debug, PartialEq)]
    struct Failed(u8);
    let (memory, locks) = slow_store();
    let inner = service_fn(|_: Request<()>| ready(Err::<Response<Empty<Bytes>>, _>(Failed(7))));
    let error = layer(&locks).layer(inner).oneshot(post()).await.expect_err("fails");
    assert_eq!(error, Failed(7));
    assert!(memory.is_empty());
}

#[tokio::test]
async fn a_store_that_does_not_answer_the_release_delays_the_response_but_keeps_it() {
    let (memory, locks) = store();
    let hurt = memory.clone();
    let response = respond(&locks, move |_| {
        hurt.set_delay(Duration::from_hours(1));
        Empty::<Bytes>::new()
    })
    .await;
    assert_eq!(response.status(), 200);
    assert_eq!(memory.len(), 1, "released, so nothing was shown");
}

#[tokio::test]
async fn a_store_that_fails_the_release_does_not_change_the_response() {
    let (memory, locks) = store();
    let hurt = memory.clone();
    let response = respond(&locks, move |_| {
        hurt.set_failing(true);
        Empty::<Bytes>::new()
    })
    .await;
    assert_eq!(response.status(), 200);
    memory.set_failing(false);
    until("the release in the background", || memory.is_empty()).await;
}

#[tokio::test]
async fn a_stream_keeps_the_lock_and_frees_it_before_its_end_leaves() {
    let (memory, locks) = slow_store();
    let mut body =
        respond(&locks, |_| Frames::<Infallible>::new([Ok(data("a")), Ok(data("b"))])).await.into_body();
    assert_eq!(memory.len(), 1);
    assert!(!body.is_end_stream());
    assert_eq!((body.size_hint().lower(), body.size_hint().upper()), (1, Some(1000)));
    for text in ["a", "b"] {
        let frame = next(&mut body).await.expect("a frame").expect("no error");
        assert_eq!(frame.into_data().expect("data"), text);
        assert!(memory.len() == 1 && !body.is_end_stream());
    }
    assert!(next(&mut body).await.is_none());
    assert!(memory.is_empty() && body.is_end_stream());
    // However often it is polled.
    assert!(next(&mut body).await.is_none());
}

#[tokio::test]
async fn a_stream_that_knows_its_end_frees_the_lock_before_its_last_frame_leaves() {
    let (memory, locks) = slow_store();
    let response =
        respond(&locks, |_| Frames::<Infallible>::new([Ok(data("a")), Ok(data("bc"))]).knowing_its_end())
            .await;
    let mut body = response.into_body();
    assert!(next(&mut body).await.expect("a frame").expect("no error").is_data());
    assert_eq!(memory.len(), 1);

    // While the last frame is held back, its length is known and the end is not there yet.
    let last = loop {
        let mut frame = pin!(body.frame());
        if let Poll::Ready(last) = poll_once(frame.as_mut()).await {
            break last;
        }
        assert!(!body.is_end_stream());
        if let Some(length) = body.size_hint().exact() {
            assert_eq!((length, memory.len()), (2, 1));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert_eq!(last.expect("a frame").expect("no error").into_data().expect("data"), "bc");
    assert!(memory.is_empty() && body.is_end_stream());
    assert!(next(&mut body).await.is_none());
}

/// One poll.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

#[tokio::test]
async fn trailers_leave_after_the_release() {
    let (memory, locks) = slow_store();
    let mut body =
        respond(&locks, |_| Frames::<Infallible>::new([Ok(data("a")), Ok(trailers())])).await.into_body();
    assert!(next(&mut body).await.expect("a frame").expect("no error").is_data());
    assert_eq!(memory.len(), 1);
    assert!(next(&mut body).await.expect("a frame").expect("no error").is_trailers());
    assert!(memory.is_empty() && body.is_end_stream());
    assert!(next(&mut body).await.is_none());
}

#[tokio::test]
async fn a_streams_own_error_is_kept_and_frees_the_lock() {
    #[derive(Debug)]
    struct Broken;
    impl fmt::Display for Broken {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("broken")
        }
    }
    impl std::error::Error for Broken {}
    let (memory, locks) = slow_store();
    let mut body = respond(&locks, |_| Frames::new([Ok(data("a")), Err(Broken)])).await.into_body();
    assert!(next(&mut body).await.expect("a frame").is_ok());
    assert_eq!(memory.len(), 1);
    let error = next(&mut body).await.expect("a frame").expect_err("fails");
    assert!(error.source().expect("the inner body's").is::<Broken>());
    assert!(memory.is_empty());
    assert!(next(&mut body).await.is_none());
}

#[tokio::test]
async fn another_request_is_refused_for_as_long_as_the_stream_lasts() {
    let (memory, locks) = slow_store();
    let (mut events, stream) = Channel::<Bytes>::new(1);
    let stream = Arc::new(Mutex::new(Some(stream)));
    let service = layer(&locks).layer(service_fn(move |_: Request<()>| {
        let stream = stream.lock().expect("not poisoned").take();
        ready(Ok::<_, Infallible>(Response::new(stream.map_or(Either::Right(Empty::new()), Either::Left))))
    }));
    let mut body = service.clone().oneshot(post()).await.expect("infallible").into_body();
    for _ in 0..3 {
        events.send_data(Bytes::from_static(b"event")).await.expect("listening");
        assert!(next(&mut body).await.expect("a frame").is_ok());
        assert_eq!(service.clone().oneshot(post()).await.expect("infallible").status(), 409);
    }
    drop(events);
    assert!(next(&mut body).await.is_none());
    assert_eq!(service.clone().oneshot(post()).await.expect("infallible").status(), 200);
    assert!(memory.is_empty());
}

#[tokio::test]
async fn a_dropped_stream_ends_under_the_lock_and_then_frees_it() {
    let (memory, locks) = store();
    let probed = Probed::default();
    let probe = probed.clone();
    let response =
        respond(&locks, move |lock| Frames::<Infallible>::new([Ok(data("a"))]).watched_by(probe.watch(lock)))
            .await;
    drop(response);
    assert!(probed.dropped() && probed.dropped_under_lock());
    until("the release in the background", || memory.is_empty()).await;
}

#[tokio::test]
async fn a_finished_stream_is_dropped_under_the_lock() {
    let (_memory, locks) = slow_store();
    let probed = Probed::default();
    let probe = probed.clone();
    let response =
        respond(&locks, move |lock| Frames::<Infallible>::new([Ok(data("a"))]).watched_by(probe.watch(lock)))
            .await;
    response.into_body().collect().await.expect("a body");
    assert!(probed.dropped() && probed.dropped_under_lock());
}

/// The loss that a body ended with.
fn loss(frame: Option<Result<Frame<Bytes>, ResponseBodyError>>) -> LockErrorKind {
    let error = frame.expect("not a clean end").expect_err("an error");
    let loss = error.source().and_then(|source| source.downcast_ref::<LockError>());
    loss.expect("the lock's").kind()
}

#[tokio::test]
async fn a_stream_that_lost_its_lock_breaks_off_though_it_waits_for_ever() {
    struct Never {
        _probe: Probe,
    }
    impl Body for Never {
        type Data = Bytes;
        type Error = Infallible;
        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }
    let (_memory, locks) = store();
    let locks = locks.ttl(Duration::from_millis(150)).auto_renew(false);
    let probed = Probed::default();
    let probe = probed.clone();
    let mut body = respond(&locks, move |lock| Never { _probe: probe.watch(lock) }).await.into_body();
    assert_eq!(loss(next(&mut body).await), LockErrorKind::Lost);
    assert!(probed.dropped());
    assert!(next(&mut body).await.is_none() && body.is_end_stream());
}

#[tokio::test]
async fn a_stream_is_not_polled_once_its_lock_is_lost() {
    let (_memory, locks) = store();
    let locks = locks.ttl(Duration::from_millis(150)).auto_renew(false);
    let view = Arc::new(Mutex::new(None));
    let shown = Arc::clone(&view);
    let response = respond(&locks, move |lock| {
        *shown.lock().expect("not poisoned") = Some(lock);
        let mut frames = Frames::<Infallible>::new([Ok(data("a"))]);
        frames.pending = false;
        frames
    })
    .await;
    let lock: HeldLock = view.lock().expect("not poisoned").take().expect("shown");
    soon("the loss", lock.lost()).await;
    assert_eq!(loss(next(&mut response.into_body()).await), LockErrorKind::Lost);
}

#[tokio::test]
async fn the_end_of_a_stream_whose_lock_the_store_gave_away_is_an_error() {
    let (memory, locks) = store();
    let frames = || Frames::<Infallible>::new([Ok(data("a")), Ok(data("b"))]);
    for known in [false, true] {
        let response =
            respond(&locks, move |_| if known { frames().knowing_its_end() } else { frames() }).await;
        let mut body = response.into_body();
        assert!(next(&mut body).await.expect("a frame").is_ok());
        assert!(memory.lose(KEY));
        if !known {
            assert!(next(&mut body).await.expect("a frame").is_ok());
        }
        assert_eq!(loss(next(&mut body).await), LockErrorKind::Lost);
        assert!(next(&mut body).await.is_none());
    }
}
