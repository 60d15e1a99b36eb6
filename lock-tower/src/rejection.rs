//! What is answered instead of calling the inner service.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use lock_runtime::{
    __private::{self, Answer, Code},
    LockError, LockErrorKind,
};

use crate::{KeyRejection, key::Fault, protocol::Wire};

/// Why a request was refused, or its answer withheld; for [`LockLayer::on_rejection`](crate::LockLayer::on_rejection).
#[derive(Debug)]
pub struct LockRejection {
    reason: Reason,
    answer: Answer,
    wire: Wire,
}

#[derive(Debug)]
enum Reason {
    /// It has no key.
    Key(KeyRejection),
    /// Its lock was not acquired, or was lost.
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

    /// The wait was cut by the client's own deadline.
    pub(crate) fn cut(mut self) -> Self {
        self.answer.code = Code::DeadlineExceeded;
        self
    }

    /// What went wrong: [`InvalidKey`](LockErrorKind::InvalidKey) for a request that gives no valid key,
    /// [`InvalidOptions`](LockErrorKind::InvalidOptions) for a wrong wiring, else what the lock's error says.
    #[must_use]
    pub fn kind(&self) -> LockErrorKind {
        match &self.reason {
            Reason::Key(KeyRejection { fault: Fault::Request, .. }) => LockErrorKind::InvalidKey,
            Reason::Key(KeyRejection { fault: Fault::Server, .. }) => LockErrorKind::InvalidOptions,
            Reason::Lock(error) => error.kind(),
        }
    }

    /// The lock's error, where there is one. Its text names the key and is not meant for clients.
    #[must_use]
    pub fn error(&self) -> Option<&LockError> {
        match &self.reason {
            Reason::Key(rejection) => rejection.source.as_ref(),
            Reason::Lock(error) => Some(error),
        }
    }

    /// After how long another attempt makes sense, where that is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.answer.retry_after()
    }

    /// Whether the client speaks gRPC, and reads `grpc-status` and not the status code.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        matches!(self.wire, Wire::Grpc { .. })
    }

    /// The answer that the layer gives unless it is told otherwise.
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

    /// Writes what the client is not told into the log.
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
