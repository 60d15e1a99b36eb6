//! Redis servers: settings, connections, errors, batches of calls, and the format of this library's locks.

pub(crate) mod batch;
pub(crate) mod config;
pub(crate) mod error;
pub(crate) mod foreign;
pub(crate) mod format;
pub(crate) mod lua;
pub(crate) mod net;
pub(crate) mod rights;
pub(crate) mod slot;
