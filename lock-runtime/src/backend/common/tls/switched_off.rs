//! Stands for TLS where the feature `tls` is off: a value that cannot be made.

use super::{probe::Line, settings::Files};
use crate::{LockError, LockErrorKind};

#[derive(Clone, Debug)]
pub(in crate::backend) enum Tls {}

impl Tls {
    /// Refuses a URL with this scheme.
    pub(in crate::backend) fn new(
        _store: &'static str,
        scheme: &str,
        _files: Files,
        _hosts: &[&str],
    ) -> Result<Self, LockError> {
        Err(LockError::new(
            LockErrorKind::Unsupported,
            format!("`{scheme}:` is not compiled in; switch on the feature `tls` of lock-runtime"),
        ))
    }
}

/// Not found out without TLS of our own.
pub(in crate::backend) fn speaks_tls(_host: &str, _line: Line) -> bool {
    false
}
