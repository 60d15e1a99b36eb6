//! How long a request holds its lock: until the head of its response, or until the end.

use http::{Method, Response, StatusCode, header};
use http_body::Body;

/// How long a request holds its lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoldUntil {
    /// Until the response has been produced.
    ///
    /// A response of known size is taken to be complete when the inner service returns it, so the lock is released
    /// then. A streamed response is produced while it is being sent, so the lock is held until the stream ends.
    #[default]
    Auto,
    /// Until the inner service has returned its response, even if the response body is still being produced.
    ResponseHead,
    /// Until the response body has ended, whether or not the size of the response is known. The lock is released just
    /// before the end of the body (the last frame, the trailers or the end-of-stream signal) is handed to the HTTP
    /// server.
    ///
    /// A client that reads slowly can therefore keep the lock held for up to roughly
    /// [`max_hold`](crate::LockLayer::max_hold), the limit on how long a request may hold its lock.
    ResponseEnd,
}

impl HoldUntil {
    /// Whether the lock stays held beyond the head of this response to a request of this method.
    pub(crate) fn is_after<B: Body>(self, response: &Response<B>, method: &Method) -> bool {
        let (status, body) = (response.status(), response.body());
        // Servers drop the body of such a response without polling it, so nothing would await the release.
        let ends_with_head = *method == Method::HEAD
            || (*method == Method::CONNECT && status.is_success())
            || status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            || body.is_end_stream()
            || length(response) == Some(0);
        match self {
            Self::ResponseHead => false,
            // A body of known size is sent from memory.
            Self::Auto => !ends_with_head && body.size_hint().exact().is_none(),
            Self::ResponseEnd => !ends_with_head,
        }
    }
}

/// Number of bytes that a server sends of this response's body, if known.
pub(crate) fn length<B: Body>(response: &Response<B>) -> Option<u64> {
    let header = || response.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    response.body().size_hint().exact().or_else(header)
}
