//! What is answered instead of calling the inner service.

use std::{fmt::Write as _, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use lock_runtime::{LockError, LockErrorKind};

use crate::{KeyRejection, ResponseBody, key::Fault};

/// Where the words of `type` are explained.
const TYPES: &str = "https://docs.rs/lock-tower/#";

/// Why a request was refused, or its answer withheld.
#[derive(Debug)]
pub(crate) enum LockRejection {
    /// It has no key.
    Key(KeyRejection),
    /// Its lock was not acquired, or was lost.
    Lock(LockError),
}

/// A problem as RFC 9457 has it.
struct Problem {
    word: &'static str,
    status: StatusCode,
    title: &'static str,
    detail: Option<String>,
    retry_after: Option<Duration>,
}

impl LockRejection {
    /// Writes the log and makes the response.
    pub(crate) fn into_response<B>(self, contended: StatusCode) -> Response<ResponseBody<B>> {
        match self {
            Self::Key(rejection) => key_problem(rejection),
            Self::Lock(error) => lock_problem(&error, contended),
        }
        .into_response()
    }
}

fn key_problem(KeyRejection { fault, text, source }: KeyRejection) -> Problem {
    let source = source.as_ref().map(tracing::field::display);
    match fault {
        Fault::Request => {
            tracing::debug!(reason = %text, error = source, "request refused: it gives no valid lock key");
            Problem::new("invalid-key", StatusCode::BAD_REQUEST, "The request gives no valid lock key")
                .detail(text.into_owned())
        }
        Fault::Server => {
            tracing::error!(reason = %text, error = source, "request refused: its lock key cannot be built");
            failed()
        }
    }
}

fn lock_problem(error: &LockError, contended: StatusCode) -> Problem {
    match error.kind() {
        LockErrorKind::Contended | LockErrorKind::Timeout => {
            tracing::debug!(%error, "request refused: its lock is held");
            Problem::new("contended", contended, "Another request holds the lock")
                .retry_after(error.retry_after())
        }
        LockErrorKind::Backend | LockErrorKind::Overloaded | LockErrorKind::ShutDown => {
            tracing::warn!(%error, "request refused: its lock could not be acquired");
            Problem::new("unavailable", StatusCode::SERVICE_UNAVAILABLE, "Locks are not available")
                .retry_after(error.retry_after())
        }
        LockErrorKind::Lost => {
            tracing::warn!(%error, "answer withheld: the lock was lost while the request was worked on");
            Problem::new("lost", StatusCode::SERVICE_UNAVAILABLE, "The lock was lost")
                .detail("The request may have been carried out in part.".into())
                .retry_after(error.retry_after())
        }
        LockErrorKind::InvalidKey => key_problem(error.clone().into()),
        _ => {
            tracing::error!(%error, "request refused: its lock cannot be acquired as it is configured");
            failed()
        }
    }
}

fn failed() -> Problem {
    Problem::new("failed", StatusCode::INTERNAL_SERVER_ERROR, "The request cannot be locked")
}

impl Problem {
    fn new(word: &'static str, status: StatusCode, title: &'static str) -> Self {
        Self { word, status, title, detail: None, retry_after: None }
    }

    fn detail(mut self, detail: String) -> Self {
        self.detail = Some(detail);
        self
    }

    /// Worth another attempt: after this time, or soon where it is not known.
    fn retry_after(mut self, known: Option<Duration>) -> Self {
        self.retry_after = Some(known.unwrap_or_default());
        self
    }

    fn into_response<B>(self) -> Response<ResponseBody<B>> {
        let mut json = format!(
            r#"{{"type":"{TYPES}{}","title":"{}","status":{}"#,
            self.word,
            self.title,
            self.status.as_u16()
        );
        if let Some(detail) = &self.detail {
            json.push_str(r#","detail":""#);
            escape(&mut json, detail);
            json.push('"');
        }
        json.push('}');
        let mut response = Response::new(ResponseBody::own(Bytes::from(json)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(retry_after) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(retry_after)));
        }
        response
    }
}

/// Rounded up, and never 0: that would be an invitation to come back at once.
fn whole_seconds(length: Duration) -> u64 {
    length.as_secs().saturating_add(u64::from(length.subsec_nanos() > 0)).max(1)
}

/// Appends `text` as the inside of a JSON string (RFC 8259 §7).
fn escape(json: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(json, "\\u{:04x}", u32::from(c));
            }
            c => json.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up_and_never_zero() {
        for (millis, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (29_400, 30)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
        }
        assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
    }

    #[test]
    fn detail_stays_inside_its_string() {
        let mut json = String::new();
        escape(&mut json, "a\"b\\c\nd\u{1f}é\u{7f}");
        assert_eq!(json, "a\\\"b\\\\c\\u000ad\\u001fé\u{7f}");
    }

    #[test]
    fn every_kind_has_its_status() {
        use LockErrorKind as Kind;
        for (kind, status, word, retry_after) in [
            (Kind::Contended, 423, "contended", Some("2")),
            (Kind::Timeout, 423, "contended", Some("2")),
            (Kind::Lost, 503, "lost", Some("2")),
            (Kind::Backend, 503, "unavailable", Some("2")),
            (Kind::Overloaded, 503, "unavailable", Some("2")),
            (Kind::ShutDown, 503, "unavailable", Some("2")),
            (Kind::InvalidKey, 400, "invalid-key", None),
            (Kind::InvalidOptions, 500, "failed", None),
            (Kind::WouldDeadlock, 500, "failed", None),
            (Kind::Unsupported, 500, "failed", None),
            (Kind::NoManager, 500, "failed", None),
        ] {
            let error = LockError::new(kind, "secret text of the store")
                .with_key(&LockKey::new("secret:key").expect("valid"))
                .with_retry_after(Some(Duration::from_millis(1500)));
            let problem = lock_problem(&error, StatusCode::LOCKED);
            assert_eq!(problem.word, word);
            let response: Response<ResponseBody<()>> = problem.into_response();
            assert_eq!(response.status(), status, "{kind:?}");
            let shown =
                response.headers().get(header::RETRY_AFTER).map(|value| value.to_str().expect("ASCII"));
            assert_eq!(shown, retry_after, "{kind:?}");
            assert!(!format!("{:?}", response.body()).contains("secret"), "{kind:?}");
        }
    }

    use lock_runtime::LockKey;
}
