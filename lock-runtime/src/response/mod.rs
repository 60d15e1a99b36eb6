//! Answers to a client about an error, over HTTP and over gRPC.
//!
//! No answer names the key or repeats a store's message; both go into the log.

use std::{borrow::Cow, time::Duration};

use crate::{LockError, LockErrorKind, json::escape, log_limiter::LogLimiter};

#[cfg(feature = "axum")]
mod axum;
mod grpc;
#[cfg(feature = "tonic")]
mod tonic;

/// The page that explains the words of `type`.
const TYPES: &str = "https://docs.rs/lock-tower/#";

/// An answer to a request that was refused, or whose result is withheld.
#[derive(Clone, Debug)]
pub struct Answer {
    word: &'static str,
    /// The HTTP status code.
    pub status: u16,
    /// The gRPC status code.
    pub code: Code,
    title: &'static str,
    detail: Option<Cow<'static, str>>,
    retry: Retry,
}

/// The gRPC status codes that occur here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// `INVALID_ARGUMENT`
    InvalidArgument = 3,
    /// `DEADLINE_EXCEEDED`
    DeadlineExceeded = 4,
    /// `ABORTED`
    Aborted = 10,
    /// `INTERNAL`
    Internal = 13,
    /// `UNAVAILABLE`
    Unavailable = 14,
}

/// Whether another attempt makes sense.
#[derive(Clone, Copy, Debug)]
enum Retry {
    No,
    /// After this time, if it is known.
    After(Option<Duration>),
}

impl Answer {
    /// Returns the answer to this error.
    #[must_use]
    pub fn to(error: &LockError) -> Self {
        let new = |word, status, code, title| {
            let retry = Retry::After(error.advice());
            Self { word, status, code, title, detail: None, retry }
        };
        match error.kind() {
            // No client gets further by asking again, or by asking for something else.
            _ if error.is_permanent() => Self::failed(),
            LockErrorKind::Contended | LockErrorKind::Timeout => {
                new("contended", 409, Code::Aborted, "Another request holds the lock")
            }
            LockErrorKind::AlreadyRun => {
                new("already-run", 409, Code::Aborted, "The work was already started in this period")
            }
            LockErrorKind::Backend | LockErrorKind::Overloaded | LockErrorKind::ShutDown => {
                new("unavailable", 503, Code::Unavailable, "Locks are not available")
            }
            // Part of the work may have been done. So neither 503 nor `UNAVAILABLE`, after which proxies and clients
            // repeat a request by themselves, and no time after which to repeat it.
            LockErrorKind::Lost => Self {
                detail: Some("The request may have been carried out in part.".into()),
                retry: Retry::No,
                ..new("lost", 500, Code::Aborted, "The lock was lost")
            },
            LockErrorKind::InvalidKey => {
                Self::invalid_key("the lock key in this request is empty, too long or not allowed")
            }
            LockErrorKind::WouldDeadlock
            | LockErrorKind::NotHeld
            | LockErrorKind::InvalidOptions
            | LockErrorKind::Unsupported
            | LockErrorKind::NoManager => Self::failed(),
        }
    }

    /// Returns the answer to a request without a valid key; the client sees `detail`.
    #[must_use]
    pub fn invalid_key(detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            word: "invalid-key",
            status: 400,
            code: Code::InvalidArgument,
            title: "The request gives no valid lock key",
            detail: Some(detail.into()),
            retry: Retry::No,
        }
    }

    /// Returns the answer if the program or its configuration is at fault.
    #[must_use]
    pub fn failed() -> Self {
        Self {
            word: "failed",
            status: 500,
            code: Code::Internal,
            title: "The request cannot be locked",
            detail: None,
            retry: Retry::No,
        }
    }

    /// Returns how long to wait before another attempt, if that is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.retry {
            Retry::No => None,
            Retry::After(known) => known,
        }
    }

    /// Returns the headers of the HTTP response.
    #[must_use]
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = vec![("content-type", "application/problem+json".to_owned())];
        if let Retry::After(known) = self.retry {
            headers.push(("retry-after", whole_seconds(known.unwrap_or_default()).to_string()));
        }
        headers
    }

    /// Returns the body of the HTTP response: a problem as in RFC 9457.
    #[must_use]
    pub fn body(&self) -> String {
        let Self { word, status, title, .. } = self;
        let mut json = format!(r#"{{"type":"{TYPES}{word}","title":"{title}","status":{status}"#);
        if let Some(detail) = &self.detail {
            json.push_str(r#","detail":""#);
            escape(&mut json, detail);
            json.push('"');
        }
        json.push('}');
        json
    }

    /// Returns the text of the gRPC status.
    fn message(&self) -> String {
        self.detail.as_ref().map_or_else(|| self.title.into(), |detail| format!("{}: {detail}", self.title))
    }
}

/// Logs the details that are kept from the client. If one failure of the store affects many requests, they are summed
/// up.
pub fn log(error: &LockError) {
    static UNFIT: LogLimiter = LogLimiter::new();
    static AWAY: LogLimiter = LogLimiter::new();
    match error.kind() {
        _ if error.is_permanent() => UNFIT.log(
            error.message(),
            error,
            || tracing::error!(%error, "request refused: its lock cannot be acquired until the configuration is fixed"),
            |refused, error| tracing::error!(refused, error, "more requests refused: their locks cannot be acquired until the configuration is fixed"),
        ),
        LockErrorKind::Contended | LockErrorKind::Timeout => {
            tracing::debug!(%error, "request refused: its lock is held");
        }
        LockErrorKind::AlreadyRun => {
            tracing::debug!(%error, "request refused: its work was done in this period");
        }
        LockErrorKind::Backend | LockErrorKind::Overloaded | LockErrorKind::ShutDown => AWAY.log(
            error.message(),
            error,
            || tracing::warn!(%error, "request refused: its lock could not be acquired"),
            |refused, error| tracing::warn!(refused, error, "more requests refused: their locks could not be acquired"),
        ),
        // The loss itself was logged when it was noticed.
        LockErrorKind::Lost => {
            tracing::debug!(%error, "answer withheld: the lock was lost while the request was worked on");
        }
        LockErrorKind::InvalidKey => {
            tracing::debug!(%error, "request refused: it gives no valid lock key");
        }
        LockErrorKind::WouldDeadlock
        | LockErrorKind::NotHeld
        | LockErrorKind::InvalidOptions
        | LockErrorKind::Unsupported
        | LockErrorKind::NoManager => {
            tracing::error!(%error, "request refused: its lock cannot be acquired as requested");
        }
    }
}

/// Rounds up, and never to 0, which would invite the client to retry at once.
fn whole_seconds(length: Duration) -> u64 {
    length.as_secs().saturating_add(u64::from(length.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LockHolder, LockKey};

    #[test]
    fn seconds_are_rounded_up_and_never_zero() {
        for (millis, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (29_400, 30)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
        }
        assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
    }

    #[test]
    fn every_kind_has_its_answer() {
        use LockErrorKind as Kind;
        for (kind, status, code, word, retry_after) in [
            (Kind::Contended, 409, Code::Aborted, "contended", Some("2")),
            (Kind::Timeout, 409, Code::Aborted, "contended", Some("2")),
            (Kind::AlreadyRun, 409, Code::Aborted, "already-run", Some("2")),
            (Kind::Lost, 500, Code::Aborted, "lost", None),
            (Kind::Backend, 503, Code::Unavailable, "unavailable", Some("2")),
            (Kind::Overloaded, 503, Code::Unavailable, "unavailable", Some("2")),
            (Kind::ShutDown, 503, Code::Unavailable, "unavailable", Some("2")),
            (Kind::InvalidKey, 400, Code::InvalidArgument, "invalid-key", None),
            (Kind::InvalidOptions, 500, Code::Internal, "failed", None),
            (Kind::WouldDeadlock, 500, Code::Internal, "failed", None),
            (Kind::NotHeld, 500, Code::Internal, "failed", None),
            (Kind::Unsupported, 500, Code::Internal, "failed", None),
            (Kind::NoManager, 500, Code::Internal, "failed", None),
        ] {
            let holder = LockHolder::new().with_client("secret:1@secret").with_label("secret");
            let error = LockError::new(kind, "secret text of the store")
                .with_holder(Some(std::sync::Arc::new(holder)))
                .with_key(&LockKey::new("secret:key").expect("valid"))
                .with_retry_after(Some(Duration::from_secs(30)))
                .advising(Duration::from_millis(1500));
            let answer = Answer::to(&error);
            assert_eq!((answer.status, answer.code, answer.word), (status, code, word), "{kind:?}");
            let headers = answer.headers();
            let shown =
                headers.iter().find_map(|(name, value)| (*name == "retry-after").then_some(value.as_str()));
            assert_eq!(shown, retry_after, "{kind:?}");
            assert_eq!(answer.retry_after().is_some(), retry_after.is_some(), "{kind:?}");
            assert_eq!(answer.status_details().is_some(), retry_after.is_some(), "{kind:?}");
            let sent = (answer.headers(), answer.body(), answer.grpc_headers(), answer.status_details());
            let details = String::from_utf8_lossy(sent.3.as_deref().unwrap_or_default()).into_owned();
            assert!(!format!("{answer:?} {sent:?} {details}").contains("secret"), "{kind:?}");
        }
    }

    #[test]
    fn nobody_is_asked_to_try_again_what_fails_for_good() {
        // A wrong password, and a name that belongs to something else in the store.
        for kind in [LockErrorKind::Backend, LockErrorKind::InvalidKey] {
            let answer = Answer::to(&LockError::new(kind, "refused").into_permanent());
            assert_eq!((answer.status, answer.code), (500, Code::Internal));
            assert!(answer.headers().iter().all(|(name, _)| *name != "retry-after"));
        }
    }

    #[test]
    fn an_unknown_time_is_soon() {
        let answer = Answer::to(&LockError::new(LockErrorKind::Backend, "down"));
        assert_eq!(answer.headers().last().expect("there").1, "1");
        assert_eq!(answer.retry_after(), None);
    }
}
