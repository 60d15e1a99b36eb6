//! The settings in a ZooKeeper URL, and the percent-encoding of its parts.

use std::time::Duration;

use crate::backend::common::settings::Settings;

pub(super) const SETTINGS: Settings = Settings {
    store: "ZooKeeper",
    known: &[
        "session_timeout",
        "connect_timeout",
        "response_timeout",
        "auth",
        "tls_ca",
        "tls_cert",
        "tls_key",
    ],
    longest: Duration::from_secs(24 * 60 * 60),
};

/// Decodes percent-encoding such as `%40`.
pub(super) fn decode(text: &str) -> String {
    // A form decoder would take `+` for a space, and `&` and `=` for separators.
    let text = text.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    form_urlencoded::parse(text.as_bytes()).map(|(name, _)| name.into_owned()).collect()
}
