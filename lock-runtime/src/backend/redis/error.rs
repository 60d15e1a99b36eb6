//! From the driver's and the server's words to an error that says what to do.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::names;
use crate::{LockError, LockErrorKind};

/// Why a call got no answer that can be used.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// The server refused the call: it was not applied.
    Refused(LockError),
    /// Nobody knows whether it was applied, and the connection is of no more use.
    Disconnected(LockError),
    /// No answer in time: nobody knows whether it was or will be applied.
    TimedOut(LockError),
}

impl Failure {
    pub(super) fn of(error: RedisError) -> Self {
        let dropped = error.is_unrecoverable_error() || error.is_io_error();
        let error = explain(error);
        if dropped { Self::Disconnected(error) } else { Self::Refused(error) }
    }

    pub(super) fn timed_out(limit: Duration) -> Self {
        Self::TimedOut(LockError::new(
            LockErrorKind::Backend,
            format!("Redis did not answer within {limit:?}"),
        ))
    }

    /// The server refused to execute a request after its limit, twice.
    pub(super) fn too_late() -> Self {
        Self::Refused(LockError::new(
            LockErrorKind::Backend,
            "requests reach Redis so late that they are not executed any more; is the server or the network overloaded?",
        ))
    }

    pub(super) fn not_sent() -> Self {
        Self::Refused(LockError::new(
            LockErrorKind::Backend,
            "the connection to Redis broke before it was asked",
        ))
    }

    pub(super) fn runtime_gone() -> Self {
        Self::Disconnected(LockError::new(
            LockErrorKind::Backend,
            "the runtime of the connection to Redis was shut down",
        ))
    }

    pub(super) fn into_error(self) -> LockError {
        match self {
            Self::Refused(error) | Self::Disconnected(error) | Self::TimedOut(error) => error,
        }
    }
}

/// An answer that is not one of those that the script gives.
pub(super) fn unexpected(what: &str) -> LockError {
    LockError::new(
        LockErrorKind::Backend,
        format!("Redis answered {what} with something that is not understood; is a proxy in between?"),
    )
}

/// What happened and what to do, with the driver's error as the source.
fn explain(error: RedisError) -> LockError {
    let is_no_lock = |text: &str| text.contains("WRONGTYPE");
    if error.code().is_some_and(is_no_lock) || error.detail().is_some_and(is_no_lock) {
        let message = "a key with the lock's name exists and is no lock; choose another name or prefix";
        return LockError::new(LockErrorKind::InvalidKey, message).permanent().with_source(error);
    }
    if error.code() == Some("FENCE") {
        let message = format!(
            "the counter of fencing tokens stands at {}, beyond the year 2112: a clock was wrong, or it was set by hand. \
             With the right time on the server, delete the key that ends in `~{}:fence`, and reset what the resources \
             remember",
            error.detail().unwrap_or("a number"),
            names::FORMAT,
        );
        return LockError::new(LockErrorKind::Backend, message).permanent().with_source(error);
    }
    let permanent = match error.kind() {
        ErrorKind::AuthenticationFailed
        | ErrorKind::RESP3NotSupported
        | ErrorKind::Server(ServerErrorKind::NoPerm) => true,
        _ => matches!(error.code(), Some("NOAUTH" | "WRONGPASS")),
    };
    let message = match error.kind() {
        ErrorKind::Io => "the connection to Redis failed".to_owned(),
        ErrorKind::AuthenticationFailed => {
            "Redis refused the credentials; check user and password in the URL".into()
        }
        ErrorKind::Parse => {
            "what answers there does not speak the protocol of Redis; check address and port".into()
        }
        ErrorKind::RESP3NotSupported => "this Redis is too old: version 6.0 is needed for RESP3".into(),
        ErrorKind::Server(ServerErrorKind::ReadOnly) => {
            "this Redis is a read-only replica; name the primary in the URL".into()
        }
        ErrorKind::Server(ServerErrorKind::BusyLoading) => "Redis is still loading its data".into(),
        ErrorKind::Server(ServerErrorKind::NoPerm) => format!(
            "the Redis user may not do this; extend its ACL: {}",
            error.detail().unwrap_or("see the minimal ACL in the documentation of the store")
        ),
        _ => match error.code() {
            Some("OOM") => {
                "Redis is out of memory (`maxmemory`); no lock can be taken until there is room".into()
            }
            Some("MISCONF") => "Redis refuses writes because it cannot persist them; see its log".into(),
            Some("BUSY") => "Redis is busy with a long script".into(),
            Some("NOREPLICAS") => "Redis refuses writes because too few replicas are in sync".into(),
            Some("NOAUTH") => "Redis wants credentials; add user and password to the URL".into(),
            Some("WRONGPASS") => "Redis refused the credentials; check user and password in the URL".into(),
            _ if error.detail().is_some_and(|detail| detail.contains("OOM")) => {
                "Redis is out of memory (`maxmemory`); no lock can be taken until there is room".into()
            }
            _ if error.detail().is_some_and(|detail| detail.contains("DB index")) => {
                "Redis has no database of this number; check the one in the URL".into()
            }
            Some(code) => format!("Redis refused the call: {code}"),
            None => "the call to Redis failed".into(),
        },
    };
    let explained = LockError::new(LockErrorKind::Backend, message).with_source(error);
    if permanent { explained.permanent() } else { explained }
}
