//! Errors as the status of tonic methods.

use std::sync::Arc;

use tonic::{Code, Status};

use super::{Answer, log};
use crate::LockError;

/// Lets a method that returns `Result<_, Status>` be annotated with `#[distributed_lock]`, and use `?` on a
/// [`LockError`].
///
/// | kind | code |
/// |---|---|
/// | `Contended`, `Timeout`, `Lost` | `ABORTED` |
/// | `Backend`, `Overloaded`, `ShutDown` | `UNAVAILABLE` |
/// | `InvalidKey` | `INVALID_ARGUMENT` |
/// | all other kinds, and every [permanent](LockError::is_permanent) error, whatever its kind | `INTERNAL` |
///
/// If it is known how long to wait before retrying, the status details include a `google.rpc.RetryInfo` (never for
/// `Lost`, because part of the work may have been done). The client
/// learns neither the key nor the store's message. Both are written to the log, and the error is the status's source.
#[cfg_attr(docsrs, doc(cfg(feature = "tonic")))]
impl From<LockError> for Status {
    fn from(error: LockError) -> Self {
        log(&error);
        let answer = Answer::to(&error);
        let code = Code::from(answer.code as i32);
        let mut status = match answer.status_details() {
            Some(details) => Self::with_details(code, answer.message(), details.into()),
            None => Self::new(code, answer.message()),
        };
        status.set_source(Arc::new(error));
        status
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error, time::Duration};

    use tonic_types::StatusExt;

    use super::*;
    use crate::LockErrorKind;

    #[test]
    fn retry_info_is_what_others_read() {
        for known in [
            None,
            Some(Duration::ZERO),
            Some(Duration::from_millis(1500)),
            Some(Duration::new(29, 999_999_999)),
            Some(Duration::from_hours(24)),
        ] {
            let error = LockError::new(LockErrorKind::Timeout, "secret");
            let error = if let Some(known) = known { error.advising(known) } else { error };
            let status = Status::from(error);
            assert_eq!((status.code(), status.message()), (Code::Aborted, "Another request holds the lock"));
            let info = status.get_details_retry_info();
            assert_eq!(info.map(|info| info.retry_delay.expect("given")), known);
        }
    }

    #[test]
    fn the_details_repeat_code_and_message() {
        use prost::Message;
        let error = LockError::new(LockErrorKind::Timeout, "secret").advising(Duration::from_secs(u64::MAX));
        let status = Status::from(error);
        let details = tonic_types::pb::Status::decode(status.details()).expect("a google.rpc.Status");
        assert_eq!((details.code, details.message.as_str()), (10, status.message()));
        assert_eq!(status.message(), "Another request holds the lock");
    }

    #[test]
    fn what_may_be_done_in_part_is_not_to_be_repeated() {
        let error = LockError::new(LockErrorKind::Lost, "secret").advising(Duration::from_secs(1));
        let status = Status::from(error);
        assert_eq!(status.code(), Code::Aborted);
        assert!(status.message().starts_with("The lock was lost: "), "{status}");
        assert!(status.get_details_retry_info().is_none(), "{status:?}");
    }

    #[test]
    fn the_cause_stays_on_this_side() {
        let status = Status::from(LockError::new(LockErrorKind::Backend, "secret"));
        assert_eq!(status.code(), Code::Unavailable);
        assert!(!status.message().contains("secret"));
        let source = status.source().and_then(|source| source.downcast_ref::<LockError>()).expect("kept");
        assert_eq!(source.kind(), LockErrorKind::Backend);
    }
}
