//! A response body that may hold the lock, and releases it before its end leaves.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use lock_runtime::LockError;
use pin_project_lite::pin_project;

use crate::{hold::Hold, task::Task};

type BoxError = Box<dyn Error + Send + Sync>;

pin_project! {
    /// The response body of [`LockService`](crate::LockService).
    ///
    /// Its error is the inner body's, or the [`LockError`] of a lock that was lost before the body ended.
    pub struct ResponseBody<B> {
        #[pin]
        state: State<B>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<B> {
        // An answer of the layer's own.
        Own { data: Option<Bytes> },
        // Without a lock, or after its release.
        Plain { #[pin] body: B },
        // The hold comes last: dropped, the body goes before its lock.
        Held { #[pin] body: B, hold: Option<Hold> },
        // The inner body is gone, and with it the danger of polling it after its end.
        Releasing { released: Task<Result<(), LockError>>, last: Option<Result<Frame<Bytes>, BoxError>> },
        Done,
    }
}

impl<B> ResponseBody<B> {
    pub(crate) fn own(data: Bytes) -> Self {
        Self { state: State::Own { data: Some(data) } }
    }

    pub(crate) fn plain(body: B) -> Self {
        Self { state: State::Plain { body } }
    }

    pub(crate) fn held(body: B, hold: Hold) -> Self {
        Self { state: State::Held { body, hold: Some(hold) } }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Own { data } => return Poll::Ready(data.take().map(|data| Ok(Frame::data(data)))),
                StateProj::Plain { body } => {
                    return body.poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)));
                }
                StateProj::Held { mut body, hold } => {
                    let watched = hold.as_mut().expect("put there with the state");
                    let last = match ready!(watched.poll(cx, |cx| body.as_mut().poll_frame(cx))) {
                        Ok(Some(Ok(frame))) if !(frame.is_trailers() || body.is_end_stream()) => {
                            return Poll::Ready(Some(Ok(frame)));
                        }
                        Ok(last) => last.map(|frame| frame.map_err(Into::into)),
                        Err(loss) => Some(Err(broken_off(loss))),
                    };
                    let released = hold.take().expect("put there with the state").release();
                    State::Releasing { released, last }
                }
                StateProj::Releasing { released, last } => {
                    let released = ready!(released.poll(cx));
                    let last = last.take();
                    state.set(State::Done);
                    return Poll::Ready(match (released, last) {
                        (Ok(()), last) => last,
                        // The error that was there first is kept.
                        (Err(_), Some(Err(error))) => Some(Err(error)),
                        (Err(loss), _) => Some(Err(broken_off(loss))),
                    });
                }
                StateProj::Done => return Poll::Ready(None),
            };
            state.set(next);
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Own { data } => data.is_none(),
            State::Plain { body } => body.is_end_stream(),
            // Whoever is told that nothing is left drops the body without another poll, and nothing awaits the release.
            State::Held { .. } | State::Releasing { .. } => false,
            State::Done => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.state {
            State::Own { data } => SizeHint::with_exact(data.as_ref().map_or(0, |data| data.len() as u64)),
            State::Plain { body } | State::Held { body, .. } => body.size_hint(),
            State::Releasing { last: Some(Ok(frame)), .. } => {
                SizeHint::with_exact(frame.data_ref().map_or(0, |data| data.len() as u64))
            }
            State::Releasing { .. } | State::Done => SizeHint::with_exact(0),
        }
    }
}

/// The error of a response whose lock was lost before it ended.
fn broken_off(loss: LockError) -> BoxError {
    tracing::warn!(error = %loss, "response broken off: its lock was lost before it ended");
    loss.into()
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Own { data } => return f.debug_struct("ResponseBody").field("data", data).finish(),
            State::Plain { .. } => "unlocked",
            State::Held { .. } => "holds the lock",
            State::Releasing { .. } => "releases the lock",
            State::Done => "ended",
        };
        f.debug_tuple("ResponseBody").field(&format_args!("{state}")).finish()
    }
}
