//! PostgreSQL databases: settings, connections and sessions, statements, errors, notifications, and the table of the locks.

pub(crate) mod config;
pub(crate) mod connections;
pub(crate) mod dial;
pub(crate) mod error;
pub(crate) mod examine;
pub(crate) mod fitness;
pub(crate) mod halves;
pub(crate) mod listener;
pub(crate) mod notices;
pub(crate) mod overdue;
pub(crate) mod revocations;
pub(crate) mod slot;
pub(crate) mod statement;
pub(crate) mod sweep;
pub(crate) mod table;
pub(crate) mod uuid;
