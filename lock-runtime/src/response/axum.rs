//! Errors as responses of axum handlers, and the hold of a request as a handler's argument.

use axum_core::{
    body::Body,
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, request::Parts};

use super::{Answer, log};
use crate::{HeldLock, HeldLocks, LockError, LockErrorKind};

/// Converts the error to an `application/problem+json` response (RFC 9457), so that a handler can return
/// `Result<_, LockError>`.
///
/// | kind | status |
/// |---|---|
/// | `Contended`, `Timeout` | 409 with `Retry-After` |
/// | `Backend`, `Overloaded`, `ShutDown` | 503 with `Retry-After` |
/// | `Lost` | 500, because part of the work may have been done, and proxies repeat a request after 503 |
/// | `InvalidKey` | 400 |
/// | all other kinds, and every [permanent](LockError::is_permanent) error, whatever its kind | 500 |
///
/// The client learns neither the key nor the store's message. Both are written to the log.
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl IntoResponse for LockError {
    fn into_response(self) -> Response {
        log(&self);
        let answer = Answer::to(&self);
        let mut response = Response::new(Body::from(answer.body()));
        *response.status_mut() = StatusCode::from_u16(answer.status).expect("a status code");
        for (name, value) in answer.headers() {
            response.headers_mut().insert(name, HeaderValue::try_from(value).expect("visible ASCII"));
        }
        response
    }
}

/// Extracts the handle to the lock under which `lock_tower::LockLayer` runs the request.
///
/// If the request does not run under a lock, the response is 500, and the log says how to fix this. If such requests
/// are allowed, take an `Option<HeldLock>`.
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl<S: Send + Sync> FromRequestParts<S> for HeldLock {
    type Rejection = LockError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, LockError> {
        let several = parts.extensions.get::<HeldLocks>().is_some();
        parts.extensions.get().cloned().ok_or_else(|| not_there("HeldLock", several, "HeldLocks"))
    }
}

#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl<S: Send + Sync> OptionalFromRequestParts<S> for HeldLock {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get().cloned())
    }
}

/// Extracts the handle to the locks under which a `lock_tower::LockLayer` with several keys runs the request.
///
/// If the request does not run under the locks of such a layer, the response is 500, and the log says how to fix this.
/// If such requests are allowed, take an `Option<HeldLocks>`.
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl<S: Send + Sync> FromRequestParts<S> for HeldLocks {
    type Rejection = LockError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, LockError> {
        let one = parts.extensions.get::<HeldLock>().is_some();
        parts.extensions.get().cloned().ok_or_else(|| not_there("HeldLocks", one, "HeldLock"))
    }
}

#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl<S: Send + Sync> OptionalFromRequestParts<S> for HeldLocks {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get().cloned())
    }
}

fn not_there(wanted: &str, has_other: bool, other: &str) -> LockError {
    let problem = if has_other {
        format!("the handler takes a `{wanted}`, but the layer of this route provides a `{other}`: take that")
    } else {
        format!(
            "the handler takes a `{wanted}`, but no lock layer locked this request: add the layer to the route, \
             `post(handler).route_layer(lock)`; name its method with `methods` if it is a read-only one, like \
             `GET`; or take an `Option<{wanted}>`"
        )
    };
    LockError::new(LockErrorKind::InvalidOptions, problem)
}
