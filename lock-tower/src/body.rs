//! A response body that may hold the lock. If it does, the lock is released before the last frame is sent.

use std::{
    error::Error,
    fmt, mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use lock_runtime::{
    __private::{Section, SyncFuture},
    LockError,
};
use pin_project_lite::pin_project;

type BoxError = Box<dyn Error + Send + Sync>;

pin_project! {
    /// The response body of [`LockService`](crate::LockService).
    pub struct ResponseBody<B> {
        // Declared before the section, so that the body is dropped before its lock. `None` once it has ended, so that
        // it is not polled again.
        #[pin]
        inner: Option<B>,
        state: State,
    }
}

enum State {
    /// A response that the layer itself generated.
    Own(Option<Bytes>),
    /// There is no lock, or it has been released.
    Plain,
    Held {
        section: Section,
        /// Number of bytes left, if the response states its length, because servers do not poll for more.
        left: Option<u64>,
    },
    Releasing {
        released: SyncFuture<Result<(), LockError>>,
        last: Option<Result<Frame<Bytes>, ResponseBodyError>>,
    },
}

impl<B> ResponseBody<B> {
    pub(crate) fn own(data: Bytes) -> Self {
        Self { inner: None, state: State::Own(Some(data).filter(|data| !data.is_empty())) }
    }

    pub(crate) fn plain(body: B) -> Self {
        Self { inner: Some(body), state: State::Plain }
    }

    pub(crate) fn held(body: B, section: Section, left: Option<u64>) -> Self {
        Self { inner: Some(body), state: State::Held { section, left } }
    }
}

/// An empty body without a lock, for layers that respond instead of the service (CORS, timeouts, authorisation).
impl<B> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::own(Bytes::new())
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = ResponseBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        let mut this = self.project();
        loop {
            match this.state {
                State::Own(data) => return Poll::Ready(data.take().map(|data| Ok(Frame::data(data)))),
                State::Plain => {
                    let Some(body) = this.inner.as_mut().as_pin_mut() else { return Poll::Ready(None) };
                    return body
                        .poll_frame(cx)
                        .map(|frame| frame.map(|frame| frame.map_err(ResponseBodyError::inner)));
                }
                State::Held { section, left } => {
                    let mut body = this.inner.as_mut().as_pin_mut().expect("held with its body");
                    let frame = ready!(section.poll(cx, |cx| body.as_mut().poll_frame(cx)));
                    let mut ended = true;
                    if let Ok(Some(Ok(frame))) = &frame
                        && let Some(data) = frame.data_ref()
                    {
                        *left = left.map(|left| left.saturating_sub(data.len() as u64));
                        ended = body.is_end_stream();
                    }
                    let last = match frame {
                        Ok(Some(Ok(frame))) if !ended && *left != Some(0) => {
                            return Poll::Ready(Some(Ok(frame)));
                        }
                        Ok(last) => last.map(|frame| frame.map_err(ResponseBodyError::inner)),
                        Err(loss) => Some(Err(broken_off(loss))),
                    };
                    if ended {
                        this.inner.set(None);
                    }
                    if let State::Held { section, .. } = mem::replace(this.state, State::Plain) {
                        *this.state =
                            State::Releasing { released: SyncFuture::new(Box::pin(section.release())), last };
                    }
                }
                State::Releasing { released, last } => {
                    let released = ready!(released.poll(cx));
                    let last = last.take();
                    *this.state = State::Plain;
                    return Poll::Ready(match (released, last) {
                        (Ok(()), last) => last,
                        // The first error is kept.
                        (Err(_), Some(Err(error))) => Some(Err(error)),
                        (Err(loss), _) => {
                            this.inner.set(None);
                            Some(Err(broken_off(loss)))
                        }
                    });
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Own(data) => data.is_none(),
            State::Plain => self.inner.as_ref().is_none_or(Body::is_end_stream),
            // If this returned `true`, the server would drop the body unpolled, and nothing would await the release.
            State::Held { .. } | State::Releasing { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        let rest = || self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        match &self.state {
            State::Own(data) => SizeHint::with_exact(data.as_ref().map_or(0, |data| data.len() as u64)),
            State::Plain | State::Held { .. } => rest(),
            State::Releasing { last: Some(Ok(frame)), .. } => {
                let data = frame.data_ref().map_or(0, |data| data.len() as u64);
                let (rest, mut hint) = (rest(), SizeHint::new());
                hint.set_lower(rest.lower().saturating_add(data));
                if let Some(upper) = rest.upper() {
                    hint.set_upper(upper.saturating_add(data));
                }
                hint
            }
            State::Releasing { .. } => SizeHint::with_exact(0),
        }
    }
}

/// The error of a response whose lock was lost before it ended.
fn broken_off(loss: LockError) -> ResponseBodyError {
    // The loss itself was logged when it was noticed.
    tracing::debug!(error = %loss, "response broken off: its lock was lost before it ended");
    ResponseBodyError(loss.into())
}

/// The error of a [`ResponseBody`]: the inner body's error, or a [`LockError`] if the lock was lost before the body
/// ended.
///
/// That error is its [`source`](Error::source), and provides its message.
#[derive(Debug)]
pub struct ResponseBodyError(BoxError);

impl ResponseBodyError {
    fn inner(error: impl Into<BoxError>) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for ResponseBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for ResponseBodyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Own(data) => return f.debug_tuple("ResponseBody").field(data).finish(),
            State::Plain => "unlocked",
            State::Held { .. } => "holds the lock",
            State::Releasing { .. } => "releases the lock",
        };
        f.debug_tuple("ResponseBody").field(&format_args!("{state}")).finish()
    }
}
