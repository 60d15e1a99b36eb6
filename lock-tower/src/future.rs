//! One request: its lock, then the inner service, then the release.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use lock_runtime::{LockError, LockGuard, LockKey};
use pin_project_lite::pin_project;
use tower::Service;

use crate::{KeyRejection, LockLayer, ResponseBody, hold::Hold, rejection::LockRejection, task::Task};

pin_project! {
    /// The response future of [`LockService`](crate::LockService).
    ///
    /// # Cancel safety
    /// Dropping it drops the inner future, then releases the lock in the background.
    #[must_use = "futures do nothing unless awaited"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: StateOf<S, Request<B>>,
        contended_status: StatusCode,
    }
}

type StateOf<S, R> =
    State<S, R, <S as Service<R>>::Future, Result<<S as Service<R>>::Response, <S as Service<R>>::Error>>;

pin_project! {
    #[project = StateProj]
    enum State<S, R, F, T> {
        Unlocked { #[pin] inner: F },
        Rejected { rejection: Option<LockRejection> },
        Acquiring { guard: Task<Result<LockGuard, LockError>>, ready: Option<(S, R)> },
        // The hold comes last: dropped, the inner future goes before its lock.
        Working { #[pin] inner: F, hold: Option<Hold> },
        // The output, or the loss that came before it.
        Releasing { released: Task<Result<(), LockError>>, output: Option<Result<T, LockError>> },
        Done,
    }
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn new(state: StateOf<S, Request<B>>, layer: &LockLayer) -> Self {
        Self { state, contended_status: layer.contended_status }
    }

    pub(crate) fn unlocked(mut ready: S, request: Request<B>, layer: &LockLayer) -> Self {
        Self::new(State::Unlocked { inner: ready.call(request) }, layer)
    }

    pub(crate) fn rejected(rejection: KeyRejection, layer: &LockLayer) -> Self {
        Self::new(State::Rejected { rejection: Some(LockRejection::Key(rejection)) }, layer)
    }

    pub(crate) fn locked(ready: S, request: Request<B>, layer: &LockLayer, key: LockKey) -> Self {
        let lock = layer.locks.lock(key);
        let guard = Task::new(async move { lock.acquire().await });
        Self::new(State::Acquiring { guard, ready: Some((ready, request)) }, layer)
    }
}

impl<S, B, ResBody> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    ResBody: Body<Data = Bytes>,
{
    type Output = Result<Response<ResponseBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Unlocked { inner } => {
                    let output = ready!(inner.poll(cx));
                    this.state.set(State::Done);
                    return Poll::Ready(output.map(|response| response.map(ResponseBody::plain)));
                }
                StateProj::Rejected { rejection } => {
                    let rejection = rejection.take().expect("put there with the state");
                    this.state.set(State::Done);
                    return Poll::Ready(Ok(rejection.into_response(*this.contended_status)));
                }
                StateProj::Acquiring { guard, ready } => match ready!(guard.poll(cx)) {
                    Ok(guard) => {
                        let mut hold = Hold::new(guard);
                        let (mut ready, mut request) = ready.take().expect("put there with the state");
                        request.extensions_mut().insert(hold.view());
                        State::Working { inner: hold.enter(|| ready.call(request)), hold: Some(hold) }
                    }
                    Err(error) => State::Rejected { rejection: Some(LockRejection::Lock(error)) },
                },
                StateProj::Working { inner, hold } => {
                    let watched = hold.as_mut().expect("put there with the state");
                    let output = ready!(watched.poll(cx, |cx| inner.poll(cx)));
                    let hold = hold.take().expect("put there with the state");
                    match output {
                        // The work goes on in the body.
                        Ok(Ok(response)) if hold.is_valid() && !is_complete(response.body()) => {
                            this.state.set(State::Done);
                            return Poll::Ready(Ok(response.map(|body| ResponseBody::held(body, hold))));
                        }
                        // Setting the state drops the inner future, before the release is begun.
                        output => State::Releasing { released: hold.release(), output: Some(output) },
                    }
                }
                StateProj::Releasing { released, output } => {
                    let released = ready!(released.poll(cx));
                    let output = output.take().expect("put there with the state");
                    this.state.set(State::Done);
                    return Poll::Ready(match (output, released) {
                        (Ok(Ok(response)), Ok(())) => Ok(response.map(ResponseBody::plain)),
                        (Ok(Err(error)), released) => {
                            if let Err(loss) = released {
                                tracing::warn!(error = %loss, "the lock was lost before the inner service failed");
                            }
                            Err(error)
                        }
                        (Ok(Ok(_)), Err(loss)) | (Err(loss), _) => {
                            Ok(LockRejection::Lock(loss).into_response(*this.contended_status))
                        }
                    });
                }
                StateProj::Done => panic!("polled after it was ready"),
            };
            this.state.set(next);
        }
    }
}

/// Whether nothing is left to be produced: such a body is sent from memory, and needs no lock.
fn is_complete(body: &impl Body) -> bool {
    body.is_end_stream() || body.size_hint().exact().is_some()
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
