//! Shared parts of the stores: the settings of a URL, connecting once, TLS, and the log lines of an outage.

pub(super) mod host;
pub(super) mod outage;
pub(super) mod settings;
pub(super) mod single_flight;
pub(super) mod tls;
