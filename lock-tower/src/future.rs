//! The future of one request: it acquires the lock, calls the inner service, and releases the lock.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Extensions, Method, Request, Response};
use http_body::Body;
use lock_runtime::{
    __private::{Guards, Section, SyncFuture},
    LockError, LockErrorKind,
};
use pin_project_lite::pin_project;
use tower::Service;

use crate::{KeyRejection, LockLayer, LockRejection, ResponseBody, hold_until, keys::Found, protocol::Wire};

pin_project! {
    /// The response future of [`LockService`](crate::LockService).
    ///
    /// # Cancel safety
    /// Dropping the future drops the inner future and then releases the lock in the background.
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
    #[project_replace = StateOwned]
    enum State<S, R, F, T> {
        Unlocked { #[pin] inner: F },
        Rejected { response: Response<Bytes> },
        Acquiring { guards: SyncFuture<Result<Guards, LockError>>, service: S, request: R, call: Call },
        // The section comes last, so that the inner future is dropped before its lock.
        Working { #[pin] inner: F, call: Call, section: Section },
        // The output, or the loss that came before it.
        Releasing { released: SyncFuture<Result<(), LockError>>, output: Result<T, LockError>, call: Call },
        Done,
    }
}

/// The context of a locked request.
struct Call {
    layer: Arc<LockLayer>,
    wire: Wire,
    method: Method,
    /// Whether the wait is shorter than that of the layer because of the client's `grpc-timeout`.
    is_cut: bool,
}

impl Call {
    fn refuse(self, error: LockError) -> Response<Bytes> {
        let cut = self.is_cut && matches!(error.kind(), LockErrorKind::Contended | LockErrorKind::Timeout);
        let rejection = LockRejection::no_lock(error, self.layer.contended_status, self.wire);
        self.layer.answer(&if cut { rejection.cut() } else { rejection })
    }
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
        Self { state: State::Rejected { response } }
    }

    pub(crate) fn locked(
        ready: S,
        request: Request<B>,
        layer: &Arc<LockLayer>,
        keys: Found,
        wire: Wire,
    ) -> Self {
        let patience = wire.timeout().filter(|timeout| *timeout < layer.wait);
        let guards = layer.acquire(keys, patience.unwrap_or(layer.wait), request.extensions());
        let method = request.method().clone();
        let call = Call { layer: Arc::clone(layer), wire, method, is_cut: patience.is_some() };
        Self { state: State::Acquiring { guards, service: ready, request, call } }
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
            // The first match awaits an event. The second one takes the old state apart and handles the event.
            let event = match state.as_mut().project() {
                StateProj::Unlocked { inner } => Event::Answered(ready!(inner.poll(cx))),
                StateProj::Acquiring { guards, .. } => Event::Acquired(ready!(guards.poll(cx))),
                StateProj::Working { inner, section, .. } => {
                    Event::Worked(ready!(section.poll(cx, |cx| inner.poll(cx))))
                }
                StateProj::Releasing { released, .. } => Event::Released(ready!(released.poll(cx))),
                StateProj::Rejected { .. } => Event::Nothing,
                StateProj::Done => panic!("polled after it was ready"),
            };
            // This drops the inner future before its lock is released.
            match (state.as_mut().project_replace(State::Done), event) {
                (StateOwned::Unlocked { .. }, Event::Answered(output)) => {
                    return Poll::Ready(output.map(|response| response.map(ResponseBody::plain)));
                }
                (StateOwned::Rejected { response }, _) => {
                    return Poll::Ready(Ok(response.map(ResponseBody::own)));
                }
                (
                    StateOwned::Acquiring { mut service, mut request, call, .. },
                    Event::Acquired(Ok(guards)),
                ) => {
                    show(&guards, request.extensions_mut());
                    let mut section = Section::new(guards, call.layer.on_lost);
                    let inner = section.enter(|| service.call(request));
                    state.set(State::Working { inner, call, section });
                }
                (StateOwned::Acquiring { call, .. }, Event::Acquired(Err(error))) => {
                    state.set(State::Rejected { response: call.refuse(error) });
                }
                // The rest of the work is done while the response body is polled.
                (StateOwned::Working { call, section, .. }, Event::Worked(Ok(Ok(response))))
                    if call.layer.hold_until.is_after(&response, &call.method) && section.may_go_on() =>
                {
                    let left = hold_until::length(&response);
                    return Poll::Ready(Ok(response.map(|body| ResponseBody::held(body, section, left))));
                }
                (StateOwned::Working { call, section, .. }, Event::Worked(output)) => {
                    state.set(State::Releasing {
                        released: SyncFuture::new(Box::pin(section.release())),
                        output,
                        call,
                    });
                }
                (StateOwned::Releasing { output: Ok(Ok(response)), .. }, Event::Released(Ok(()))) => {
                    return Poll::Ready(Ok(response.map(ResponseBody::plain)));
                }
                (StateOwned::Releasing { output: Ok(Err(error)), .. }, Event::Released(released)) => {
                    if let Err(loss) = released {
                        tracing::debug!(error = %loss, "the lock was lost before the inner service failed");
                    }
                    return Poll::Ready(Err(error));
                }
                (StateOwned::Releasing { output: Err(loss), call, .. }, _)
                | (StateOwned::Releasing { call, .. }, Event::Released(Err(loss))) => {
                    return Poll::Ready(Ok(call.refuse(loss).map(ResponseBody::own)));
                }
                _ => unreachable!("each event belongs to the state in which it is awaited"),
            }
        }
    }
}

/// The event that a state waited for.
enum Event<T> {
    Nothing,
    Answered(T),
    Acquired(Result<Guards, LockError>),
    Worked(Result<T, LockError>),
    Released(Result<(), LockError>),
}

/// Puts a handle to the held locks into the request's extensions, for the inner service.
fn show(guards: &Guards, extensions: &mut Extensions) {
    match guards {
        Guards::One(guard) => drop(extensions.insert(guard.held())),
        Guards::Several(guard) => drop(extensions.insert(guard.held())),
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
