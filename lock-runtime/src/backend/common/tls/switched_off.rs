//! Replaces the settings of TLS if the feature `tls` is off, by a type that has no values.

use super::{probe::TimedStream, settings::Files};
use crate::{LockError, LockErrorKind};

#[derive(Clone, Debug)]
pub(in crate::backend) enum Tls {}

impl Tls {
    /// Refuses a URL whose scheme asks for TLS.
    pub(in crate::backend) fn new(
        _store: &'static str,
        scheme: &str,
        _files: Files,
        _hosts: &[&str],
    ) -> Result<Self, LockError> {
        Err(LockError::new(
            LockErrorKind::Unsupported,
            format!(
                "`{scheme}:` is not compiled in; switch on the feature `tls-aws-lc-rs` or `tls-ring` of lock-runtime"
            ),
        ))
    }
}

/// Returns `false`: without the feature, this process cannot find out whether a server speaks TLS.
pub(in crate::backend) fn speaks_tls(_host: &str, _stream: TimedStream) -> bool {
    false
}
