//! One request: its lock, then the inner service, then the release.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body::Body;
use lock_runtime::{__private::Guards, LockError, LockErrorKind};
use pin_project_lite::pin_project;
use tower::Service;

use crate::{
    HoldUntil, KeyRejection, LockLayer, LockRejection, ResponseBody, hold::Hold, key::Found, protocol::Wire,
    task::Task,
};

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
    }
}

type StateOf<S, R> =
    State<S, R, <S as Service<R>>::Future, Result<<S as Service<R>>::Response, <S as Service<R>>::Error>>;

pin_project! {
    #[project = StateProj]
    enum State<S, R, F, T> {
        Unlocked { #[pin] inner: F },
        Rejected { response: Option<Response<Bytes>> },
        Acquiring { guards: Task<Result<Guards, LockError>>, ready: Option<(S, R, Call)> },
        // The hold comes last: dropped, the inner future goes before its lock.
        Working { #[pin] inner: F, call: Option<Call>, hold: Option<Hold> },
        // The output, or the loss that came before it.
        Releasing { released: Task<Result<(), LockError>>, output: Option<(Result<T, LockError>, Call)> },
        Done,
    }
}

/// What is known of a request that is locked.
struct Call {
    layer: Arc<LockLayer>,
    wire: Wire,
    method: Method,
    /// Its wait is shorter than the layer's, because the client waits no longer.
    is_cut: bool,
}

impl Call {
    fn refuse(self, error: LockError) -> Response<Bytes> {
        let cut = self.is_cut && matches!(error.kind(), LockErrorKind::Contended | LockErrorKind::Timeout);
        let rejection = LockRejection::no_lock(error, self.layer.contended_status, self.wire);
        self.layer.answer(&if cut { rejection.cut() } else { rejection })
    }

    /// Whether the lock is held until this response is sent.
    fn is_held_by<B: Body>(&self, response: &Response<B>) -> bool {
        let (status, body) = (response.status(), response.body());
        // Servers drop the body of such a response without a look at it, and nothing would await the release.
        let ends_with_head = self.method == Method::HEAD
            || (self.method == Method::CONNECT && status.is_success())
            || status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            || body.is_end_stream()
            || length(response) == Some(0);
        match self.layer.hold_until {
            HoldUntil::ResponseHead => false,
            // What is of known size is sent from memory.
            HoldUntil::Auto => !ends_with_head && body.size_hint().exact().is_none(),
            HoldUntil::ResponseEnd => !ends_with_head,
        }
    }
}

/// How many bytes a server sends of this response, where that is known.
fn length<B: Body>(response: &Response<B>) -> Option<u64> {
    let header = || response.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    response.body().size_hint().exact().or_else(header)
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(crate) fn unlocked(mut ready: S, request: Request<B>) -> Self {
        Self { state: State::Unlocked { inner: ready.call(request) } }
    }

    pub(crate) fn rejected(rejection: KeyRejection, layer: &LockLayer, wire: Wire) -> Self {
        let response = layer.answer(&LockRejection::no_key(rejection, wire));
        Self { state: State::Rejected { response: Some(response) } }
    }

    pub(crate) fn locked(
        ready: S,
        request: Request<B>,
        layer: &Arc<LockLayer>,
        keys: Found,
        wire: Wire,
    ) -> Self {
        let patience = wire.timeout().filter(|timeout| *timeout < layer.wait);
        let guards = layer.acquire(keys, patience.unwrap_or(layer.wait));
        let method = request.method().clone();
        let call = Call { layer: Arc::clone(layer), wire, method, is_cut: patience.is_some() };
        Self { state: State::Acquiring { guards, ready: Some((ready, request, call)) } }
    }
}

impl<S, B, ResBody> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    ResBody: Body<Data = Bytes>,
{
    type Output = Result<Response<ResponseBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Unlocked { inner } => {
                    let output = ready!(inner.poll(cx));
                    state.set(State::Done);
                    return Poll::Ready(output.map(|response| response.map(ResponseBody::plain)));
                }
                StateProj::Rejected { response } => {
                    let response = response.take().expect("put there with the state");
                    state.set(State::Done);
                    return Poll::Ready(Ok(response.map(ResponseBody::own)));
                }
                StateProj::Acquiring { guards, ready } => {
                    let guards = ready!(guards.poll(cx));
                    let (mut ready, mut request, call) = ready.take().expect("put there with the state");
                    match guards {
                        Ok(guards) => {
                            let mut hold = Hold::new(guards, call.layer.on_lost);
                            hold.show(request.extensions_mut());
                            let inner = hold.enter(|| ready.call(request));
                            State::Working { inner, call: Some(call), hold: Some(hold) }
                        }
                        Err(error) => State::Rejected { response: Some(call.refuse(error)) },
                    }
                }
                StateProj::Working { inner, call, hold } => {
                    let watched = hold.as_mut().expect("put there with the state");
                    let output = ready!(watched.poll(cx, |cx| inner.poll(cx)));
                    let call = call.take().expect("put there with the state");
                    let hold = hold.take().expect("put there with the state");
                    match output {
                        // The work goes on in the body.
                        Ok(Ok(response)) if call.is_held_by(&response) && hold.may_go_on() => {
                            let left = length(&response);
                            state.set(State::Done);
                            return Poll::Ready(
                                Ok(response.map(|body| ResponseBody::held(body, hold, left))),
                            );
                        }
                        // Setting the state drops the inner future, before the release is begun.
                        output => State::Releasing { released: hold.release(), output: Some((output, call)) },
                    }
                }
                StateProj::Releasing { released, output } => {
                    let released = ready!(released.poll(cx));
                    let (output, call) = output.take().expect("put there with the state");
                    state.set(State::Done);
                    return Poll::Ready(match (output, released) {
                        (Ok(Ok(response)), Ok(())) => Ok(response.map(ResponseBody::plain)),
                        (Ok(Err(error)), released) => {
                            if let Err(loss) = released {
                                tracing::warn!(error = %loss, "the lock was lost before the inner service failed");
                            }
                            Err(error)
                        }
                        (Ok(Ok(_)), Err(loss)) | (Err(loss), _) => {
                            Ok(call.refuse(loss).map(ResponseBody::own))
                        }
                    });
                }
                StateProj::Done => panic!("polled after it was ready"),
            };
            state.set(next);
        }
    }
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
