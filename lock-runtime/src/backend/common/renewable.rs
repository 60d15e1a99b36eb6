//! The refusal of a lock that could not be renewed.

use crate::{LockError, LockErrorKind};

/// Returns the error for a lock that is not granted because there is no connection to renew it.
///
/// If the server allows no further connection (`is_full`), the error is of kind
/// [`Overloaded`](LockErrorKind::Overloaded), which ends the caller's wait. A caller that waited for room would keep
/// its own connection, which may be the last that the server allows.
pub(in crate::backend) fn cannot_renew(error: &LockError, is_full: bool) -> LockError {
    let kind = if is_full { LockErrorKind::Overloaded } else { error.kind() };
    let message = format!("the lock could not be renewed, so it is not granted: {}", error.message());
    let explained = LockError::new(kind, message).with_source(error.clone()).with_fault(error.fault());
    if error.is_permanent() { explained.into_permanent() } else { explained }
}
