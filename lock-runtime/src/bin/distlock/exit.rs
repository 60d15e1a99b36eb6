//! The exit numbers of `distlock` itself.

use lock_runtime::{LockError, LockErrorKind};

/// An exit number of `distlock` itself. The numbers from 116 on differ from the numbers of shells: 126 and 127 (a command that
/// cannot be executed or found), and 128 and a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    NotRevoked,
    Danger,
    Held,
    Lost,
    Store,
    Usage,
    NotStarted,
    Internal,
}

impl Exit {
    const ALL: [Self; 8] = [
        Self::NotRevoked,
        Self::Danger,
        Self::Held,
        Self::Lost,
        Self::Store,
        Self::Usage,
        Self::NotStarted,
        Self::Internal,
    ];

    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::NotRevoked => 1,
            Self::Danger => 116,
            Self::Held => 117,
            Self::Lost => 118,
            Self::Store => 119,
            Self::Usage => 120,
            Self::NotStarted => 121,
            Self::Internal => 122,
        }
    }

    const fn meaning(self) -> &'static str {
        match self {
            Self::NotRevoked => "`revoke`: the lock is not held with this fencing token",
            Self::Danger => "`doctor`: there is a danger",
            Self::Held => {
                "`run`: the lock was still held at the end of the wait, or the command ran already in this period, so it did not run"
            }
            Self::Lost => "`run`: the lock was lost, and the command was ended",
            Self::Store => "the store could not be reached, or refused the request",
            Self::Usage => "wrong arguments, URL or key",
            Self::NotStarted => "`run`: the command could not be started",
            Self::Internal => {
                "distlock itself failed, or could not write its output; the command of `run` was ended if it ran"
            }
        }
    }

    /// Returns the number for an error of the library.
    pub(crate) fn of(error: &LockError) -> Self {
        match error.kind() {
            LockErrorKind::Contended | LockErrorKind::Timeout | LockErrorKind::AlreadyRun => Self::Held,
            LockErrorKind::Lost => Self::Lost,
            LockErrorKind::InvalidKey | LockErrorKind::InvalidOptions => Self::Usage,
            _ => Self::Store,
        }
    }
}

/// Returns the exit status of a command that a signal has ended, as shells do.
pub(crate) fn by_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Returns the numbers and their meanings, for the help and the man page.
pub(crate) fn table() -> String {
    let numbers = Exit::ALL.map(|exit| format!("  {:>3}  {}\n", exit.code(), exit.meaning()));
    format!("Exit status of distlock itself:\n{}", numbers.concat())
}

/// Why `distlock` ends without success.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::new(Exit::of(&error), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_each_number_with_its_meaning() {
        let page = include_str!("../../docs/distlock.md");
        for exit in Exit::ALL {
            let row = format!("| {} | {} |", exit.code(), exit.meaning());
            assert_eq!(page.matches(&row).count(), 1, "{row}");
        }
        let rows = page.lines().filter(|line| line.starts_with("| 1")).count();
        assert_eq!(rows, Exit::ALL.len(), "the page has no other numbers");
    }

    #[test]
    fn no_number_is_one_of_a_shell() {
        for exit in Exit::ALL {
            assert!(!(126..=u8::MAX).contains(&exit.code()) && exit.code() != 0, "{exit:?}");
            assert_ne!(exit.code(), 2, "a wrong use of a shell's own command");
        }
        assert_eq!(by_signal(15), 143);
    }
}
