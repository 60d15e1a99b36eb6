//! The refusal of a lock that could not be renewed.

use crate::{LockError, LockErrorKind};

/// Explains why no lock is granted while there is no connection to renew it. `is_full` is whether the server has no
/// room for another connection: waiting for room would keep the caller's own connection, which may be the last.
pub(in crate::backend) fn cannot_renew(error: &LockError, is_full: bool) -> LockError {
    let kind = if is_full { LockErrorKind::Overloaded } else { error.kind() };
    let message = format!("the lock could not be renewed, so it is not granted: {}", error.message());
    let explained = LockError::new(kind, message).with_source(error.clone());
    if error.is_permanent() { explained.into_permanent() } else { explained }
}
