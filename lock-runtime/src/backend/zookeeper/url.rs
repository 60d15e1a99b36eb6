//! Parts of a ZooKeeper URL.

use std::path::PathBuf;

/// The files of `zookeeper+tls:`, in PEM.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Files {
    /// Who signs the servers' certificates.
    pub(super) ca: Option<PathBuf>,
    /// Our own certificate, where the servers want one.
    pub(super) cert: Option<PathBuf>,
    /// The key that belongs to it.
    pub(super) key: Option<PathBuf>,
}

/// Takes `%40` and the like for what they stand for.
pub(super) fn decode(text: &str) -> String {
    // A form would take `+` for a space and `&` and `=` for its own.
    let text = text.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    form_urlencoded::parse(text.as_bytes()).map(|(name, _)| name.into_owned()).collect()
}
