//! The responses of the page, with the headers that keep a browser from running or loading anything.

use axum::body::Body;
use http::{HeaderName, HeaderValue, StatusCode, header};
use lock_runtime::{__private::json, LockError, LockErrorKind};

pub(super) type Response = http::Response<Body>;

const HEADERS: [(HeaderName, HeaderValue); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; \
             frame-ancestors 'none'",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
];

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().extend(HEADERS);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(super) fn html(status: StatusCode, body: String) -> Response {
    response(status, "text/html; charset=utf-8", body)
}

pub(super) fn json(status: StatusCode, body: String) -> Response {
    response(status, "application/json", body)
}

/// Returns the error as JSON.
pub(super) fn error(error: &LockError) -> Response {
    let mut body = String::from(r#"{"error":"#);
    json::text(&mut body, Some(&error.to_string()));
    body.push('}');
    self::json(status(error), body)
}

pub(super) fn status(error: &LockError) -> StatusCode {
    match error.kind() {
        LockErrorKind::InvalidKey | LockErrorKind::InvalidOptions => StatusCode::BAD_REQUEST,
        LockErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}
