//! What stores have in common: the settings of a URL, connecting once, TLS, and what is said of an outage.

pub(super) mod host;
pub(super) mod outage;
pub(super) mod settings;
pub(super) mod single_flight;
pub(super) mod tls;
