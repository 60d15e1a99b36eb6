//! The refusal of a request, and the response to it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use lock_runtime::{
    __private::{self, Answer, Code},
    LockError, LockErrorKind,
};

use crate::{KeyRejection, key::Fault, protocol::Wire};

/// The reason why a request was refused, or why its response was replaced by an error because the lock was lost.
///
/// A rejection is passed to the function set with [`LockLayer::on_rejection`](crate::LockLayer::on_rejection).
#[derive(Debug)]
pub struct LockRejection {
    reason: Reason,
    answer: Answer,
    wire: Wire,
}

#[derive(Debug)]
enum Reason {
    /// The request has no key.
    Key(KeyRejection),
    /// The request's lock was not acquired, or was lost.
    Lock(LockError),
}

impl LockRejection {
    pub(crate) fn no_key(rejection: KeyRejection, wire: Wire) -> Self {
        let answer = match rejection.fault {
            Fault::Request => Answer::invalid_key(rejection.text.clone()),
            Fault::Server => Answer::failed(),
        };
        Self { reason: Reason::Key(rejection), answer, wire }
    }

    pub(crate) fn no_lock(error: LockError, contended: StatusCode, wire: Wire) -> Self {
        let mut answer = Answer::to(&error);
        if matches!(error.kind(), LockErrorKind::Contended | LockErrorKind::Timeout) {
            answer.status = contended.as_u16();
        }
        Self { reason: Reason::Lock(error), answer, wire }
    }

    /// Marks the wait as cut short by the client's own timeout.
    pub(crate) fn cut(mut self) -> Self {
        self.answer.code = Code::DeadlineExceeded;
        self
    }

    /// Returns the kind of the failure.
    ///
    /// * [`InvalidKey`](LockErrorKind::InvalidKey) if the request has no valid key;
    /// * [`InvalidOptions`](LockErrorKind::InvalidOptions) if no key can be built and the server is at fault, usually
    ///   because the layer is misconfigured;
    /// * otherwise, the kind of the [underlying `LockError`](Self::error).
    #[must_use]
    pub fn kind(&self) -> LockErrorKind {
        match &self.reason {
            Reason::Key(KeyRejection { fault: Fault::Request, .. }) => LockErrorKind::InvalidKey,
            Reason::Key(KeyRejection { fault: Fault::Server, .. }) => LockErrorKind::InvalidOptions,
            Reason::Lock(error) => error.kind(),
        }
    }

    /// Returns the underlying [`LockError`], if there is one. Its message can contain the key and is not meant for
    /// clients.
    #[must_use]
    pub fn error(&self) -> Option<&LockError> {
        match &self.reason {
            Reason::Key(rejection) => rejection.source.as_ref(),
            Reason::Lock(error) => Some(error),
        }
    }

    /// Returns the time after which the client should retry, if known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.answer.retry_after()
    }

    /// Returns whether the response is sent as gRPC, with a `grpc-status` instead of an HTTP error status.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        matches!(self.wire, Wire::Grpc { .. })
    }

    /// Returns the layer's default response.
    #[must_use]
    pub fn response(&self) -> Response<Bytes> {
        let (status, content_type, headers, body) = match &self.wire {
            Wire::Http => {
                let status = StatusCode::from_u16(self.answer.status).expect("made of one");
                (status, None, self.answer.headers(), Bytes::from(self.answer.body()))
            }
            Wire::Grpc { content_type, .. } => {
                (StatusCode::OK, Some(content_type.clone()), self.answer.grpc_headers(), Bytes::new())
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        for (name, value) in headers {
            let value = HeaderValue::try_from(value).expect("visible ASCII");
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
        if let Some(content_type) = content_type {
            response.headers_mut().insert(header::CONTENT_TYPE, content_type);
        }
        response
    }

    /// Logs the details that the client does not receive.
    pub(crate) fn log(&self) {
        match &self.reason {
            Reason::Lock(error) => __private::log(error),
            Reason::Key(KeyRejection { fault, text, source, .. }) => {
                let source = source.as_ref().map(tracing::field::display);
                match fault {
                    Fault::Request => {
                        tracing::debug!(reason = %text, error = source, "request refused: it gives no valid lock key");
                    }
                    Fault::Server => {
                        tracing::error!(reason = %text, error = source, "request refused: its lock key cannot be built");
                    }
                }
            }
        }
    }
}
