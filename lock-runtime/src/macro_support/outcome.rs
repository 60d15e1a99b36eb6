//! The return value of a function that runs under a lock: the output of the body, or another value if the lock was
//! not acquired or was lost.

use crate::{LockError, LockErrorKind, section::run::Outcome};

impl<T, E> Outcome<Result<T, E>> {
    /// Returns the output of the body, or the error of the loss. If the body completed with an error of its own
    /// after the loss, that error is kept, because it is more informative.
    #[expect(clippy::missing_errors_doc, reason = "the error is the loss in the outcome")]
    pub fn kept(self) -> Result<Result<T, E>, LockError> {
        match self {
            Self::InTime(output) | Self::Late(output @ Err(_), _) => Ok(output),
            Self::Late(Ok(_), loss) | Self::Dropped(loss) => Err(loss),
        }
    }
}

/// Provides [`kept`](Self::kept) for outputs other than `Result`. For a `Result`, rustc prefers the inherent method.
pub trait Kept<T> {
    /// Returns the output of the body, or the error if the lock was lost before the body completed.
    #[expect(clippy::missing_errors_doc, reason = "the error is the loss in the outcome")]
    fn kept(self) -> Result<T, LockError>;
}

impl<T> Kept<T> for Outcome<T> {
    fn kept(self) -> Result<T, LockError> {
        match self {
            Self::InTime(output) => Ok(output),
            Self::Late(_, loss) | Self::Dropped(loss) => Err(loss),
        }
    }
}

/// A type that a function with the attribute may return without `or_else`.
#[diagnostic::on_unimplemented(
    message = "acquiring the lock can fail, but `{Self}` cannot represent an error",
    label = "is neither `Result<_, E>` where `E: From<LockError>`, nor is there an `or_else`",
    note = "return a `Result`, or write `or_else = …` in the attribute: a function from `LockError` to `{Self}`"
)]
pub trait CanFail {
    /// Returns the value that represents `error`.
    fn from_lock_error(error: LockError) -> Self;
}

// Not `do_not_recommend`, so that rustc shows the message for the error type.
impl<T, E: FromLockError> CanFail for Result<T, E> {
    fn from_lock_error(error: LockError) -> Self {
        Err(E::from_lock_error(error))
    }
}

/// An error type that a function with the attribute may return without `or_else`.
#[diagnostic::on_unimplemented(
    message = "acquiring the lock can fail, but the error `{Self}` cannot represent that",
    label = "is not `From<LockError>`",
    note = "implement `From<LockError>` for an error of your own and return that, or write `or_else = …` in the attribute: \
            a function from `LockError` to the value to return, such as `or_else = |error| Err(error.to_string())`",
    note = "`tonic::Status` is `From<LockError>` with the feature `tonic` of lock-runtime"
)]
pub trait FromLockError {
    /// Converts the error.
    fn from_lock_error(error: LockError) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<LockError>> FromLockError for E {
    fn from_lock_error(error: LockError) -> Self {
        error.into()
    }
}

/// Returns the output, or the error converted to the function's return type.
pub fn or_error<R: CanFail>(outcome: Result<R, LockError>) -> R {
    outcome.unwrap_or_else(R::from_lock_error)
}

/// Returns the output, or the value that `or_else` returns for the error.
///
/// The outcome is the first parameter, so that rustc knows the return type of `or_else` before it checks the closure.
pub fn or_else<R>(outcome: Result<R, LockError>, or_else: impl FnOnce(LockError) -> R) -> R {
    outcome.unwrap_or_else(or_else)
}

/// A type that a function with `on_contention = skip` may return.
#[diagnostic::on_unimplemented(
    message = "`on_contention = skip` needs a return type that has a value for \"nothing was done\", and `{Self}` has none",
    label = "is none of `()`, `Option<_>`, `Result<(), _>`, `Result<Option<_>, _>`",
    note = "return an `Option`, or leave `on_contention` out and let `or_else` or the error say that the lock is held"
)]
pub trait Nothing {
    /// Returns the value for "nothing was done".
    fn nothing() -> Self;
}

#[diagnostic::do_not_recommend]
impl Nothing for () {
    fn nothing() -> Self {}
}

#[diagnostic::do_not_recommend]
impl<T> Nothing for Option<T> {
    fn nothing() -> Self {
        None
    }
}

#[diagnostic::do_not_recommend]
impl<T: Nothing, E> Nothing for Result<T, E> {
    fn nothing() -> Self {
        Ok(T::nothing())
    }
}

/// Returns the value of a function that was skipped.
#[must_use]
pub fn nothing<R: Nothing>() -> R {
    R::nothing()
}

/// Returns whether `on_contention = skip` applies to this error.
#[must_use]
pub fn is_contention(error: &LockError) -> bool {
    matches!(error.kind(), LockErrorKind::Contended | LockErrorKind::Timeout | LockErrorKind::AlreadyRun)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: LockErrorKind) -> LockError {
        LockError::new(kind, "")
    }

    #[test]
    fn a_late_error_of_the_bodys_own_is_kept_and_any_other_late_output_is_not() {
        let late = |output| Outcome::Late(output, error(LockErrorKind::Lost));
        assert_eq!(late(Err::<(), _>("its own")).kept().expect("the body's"), Err("its own"));
        assert_eq!(late(Ok::<_, &str>(())).kept().expect_err("lost").kind(), LockErrorKind::Lost);
        let late = Outcome::Late(7, error(LockErrorKind::Lost));
        assert_eq!(late.kept().expect_err("lost").kind(), LockErrorKind::Lost);
        assert_eq!(Outcome::InTime(7).kept().expect("in time"), 7);
    }

    #[test]
    fn only_a_lock_that_is_held_is_skipped() {
        use LockErrorKind::{
            Backend, Contended, InvalidKey, InvalidOptions, Lost, NoManager, Overloaded, ShutDown, Timeout,
            Unsupported, WouldDeadlock,
        };
        assert!([Contended, Timeout].into_iter().all(|kind| is_contention(&error(kind))));
        for kind in [
            Lost,
            Backend,
            WouldDeadlock,
            InvalidKey,
            InvalidOptions,
            Unsupported,
            Overloaded,
            ShutDown,
            NoManager,
        ] {
            assert!(!is_contention(&error(kind)), "{kind:?}");
        }
    }

    #[test]
    fn nothing_is_no_failure() {
        let () = nothing();
        assert_eq!(nothing::<Option<u8>>(), None);
        assert_eq!(nothing::<Result<(), u8>>(), Ok(()));
        assert_eq!(nothing::<Result<Option<u8>, u8>>(), Ok(None));
    }
}
