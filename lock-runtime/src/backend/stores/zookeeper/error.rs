//! Translates the driver's errors into the outcome of a call, and an error that names the remedy.

use ::zookeeper_client::Error;

use crate::{LockError, LockErrorKind, backend::FindingCode};

/// Why a call has no usable answer.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// The servers refused the call: it was not applied.
    Refused(LockError),
    /// The call is in doubt: it is unknown whether it was or will be applied.
    Unknown(LockError),
    /// The session is over, and its holds with it.
    Ended(LockError),
}

impl Failure {
    pub(super) fn of(error: Error) -> Self {
        let (ended, refused) = (is_end(&error), is_refusal(&error));
        let error = explain(error);
        if ended {
            Self::Ended(error)
        } else if refused {
            Self::Refused(error)
        } else {
            Self::Unknown(error)
        }
    }

    pub(super) fn into_error(self) -> LockError {
        match self {
            Self::Refused(error) | Self::Unknown(error) | Self::Ended(error) => error,
        }
    }
}

/// Returns whether the session is over.
fn is_end(error: &Error) -> bool {
    matches!(error, Error::SessionExpired | Error::ClientClosed | Error::AuthFailed)
}

/// Returns whether the call was definitely not applied.
///
/// The driver's errors for failed heartbeats, failed I/O and unintelligible answers do not prove a refusal: each of
/// them may come after the call was applied.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::NoNode
            | Error::NodeExists
            | Error::NotEmpty
            | Error::BadVersion
            | Error::BadArguments(_)
            | Error::NoAuth
            | Error::NoChildrenForEphemerals
            | Error::InvalidAcl
            | Error::NotReadOnly
            | Error::QuotaExceeded
            | Error::Throttled
            | Error::MarshallingError
            | Error::Unimplemented
    )
}

/// Returns the error that names the failure and its remedy, with the driver's error as the source.
fn explain(error: Error) -> LockError {
    let message = match &error {
        Error::NoAuth => {
            "ZooKeeper denied access; check user and password in the URL, and the ACL of the lock's node and of the \
             node above it"
        }
        // The node was to belong to our user, but we are not authenticated.
        Error::InvalidAcl => {
            "ZooKeeper denied access: it ignored the credentials; do the servers support the scheme that `auth` in the \
             URL names?"
        }
        Error::AuthFailed => {
            "ZooKeeper refused the credentials, or requires some; check user, password and `auth` in the URL"
        }
        Error::NoChildrenForEphemerals => {
            "an ephemeral node with the lock's name exists and is not a lock; choose another name or prefix"
        }
        Error::NoNode => "the chroot, below which all locks are, is gone; create it again",
        Error::SessionExpired => "the session with ZooKeeper expired",
        Error::ClientClosed => "the session with ZooKeeper was closed",
        Error::Timeout => "ZooKeeper did not answer in time",
        Error::NoHosts => "none of the ZooKeeper servers answers; is a majority of them running?",
        Error::QuotaExceeded => "a quota of ZooKeeper is used up; raise it",
        Error::Throttled => "ZooKeeper is overloaded and refused the call",
        Error::Unimplemented => "this ZooKeeper is too old: version 3.5.3 is needed",
        Error::NotReadOnly => "this ZooKeeper server has no majority and accepts no writes",
        _ => "the connection to ZooKeeper failed",
    };
    let kind = match error {
        Error::NoChildrenForEphemerals => LockErrorKind::InvalidKey,
        _ => LockErrorKind::Backend,
    };
    let lasts = matches!(
        error,
        Error::NoAuth | Error::InvalidAcl | Error::AuthFailed | Error::NoChildrenForEphemerals
    );
    let fault = match error {
        Error::NoAuth | Error::InvalidAcl => Some(FindingCode::Rights),
        Error::Unimplemented => Some(FindingCode::Version),
        Error::NotReadOnly => Some(FindingCode::ReadOnly),
        _ => None,
    };
    let explained = LockError::new(kind, message).with_source(error).with_fault(fault);
    if lasts { explained.into_permanent() } else { explained }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_surely_not_applied_counts_as_refused() {
        for error in [Error::NoNode, Error::NoAuth, Error::Throttled] {
            assert!(matches!(Failure::of(error), Failure::Refused(_)));
        }
        for error in [
            Error::ConnectionLoss,
            Error::Timeout,
            Error::SessionMoved,
            Error::UnexpectedError("no response from connection".into()),
            Error::UnexpectedErrorCode(-1),
        ] {
            assert!(matches!(Failure::of(error), Failure::Unknown(_)));
        }
        for error in [Error::SessionExpired, Error::ClientClosed, Error::AuthFailed] {
            assert!(matches!(Failure::of(error), Failure::Ended(_)));
        }
    }

    #[test]
    fn what_somebody_has_to_change_is_not_tried_again() {
        for (error, again) in [
            (Error::NoAuth, false),
            (Error::InvalidAcl, false),
            (Error::AuthFailed, false),
            (Error::NoHosts, true),
            (Error::ConnectionLoss, true),
        ] {
            assert_eq!(Failure::of(error.clone()).into_error().is_retryable(), again, "{error:?}");
        }
    }
}
