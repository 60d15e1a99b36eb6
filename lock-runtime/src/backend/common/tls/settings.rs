//! The `tls_…` settings in a store's URL.

use std::path::PathBuf;

/// The files that a URL names, in PEM.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::backend) struct Files {
    /// The CAs that sign the servers' certificates.
    pub(in crate::backend) ca: Option<PathBuf>,
    /// Our own certificate, if the servers ask for one.
    pub(in crate::backend) cert: Option<PathBuf>,
    /// The key of our certificate.
    pub(in crate::backend) key: Option<PathBuf>,
}

impl Files {
    /// Returns the field for the setting `name`; `None` if `name` is not one of these settings.
    pub(in crate::backend) fn of_setting(&mut self, name: &str) -> Option<&mut Option<PathBuf>> {
        match name {
            "tls_ca" => Some(&mut self.ca),
            "tls_cert" => Some(&mut self.cert),
            "tls_key" => Some(&mut self.key),
            _ => None,
        }
    }

    pub(in crate::backend) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
