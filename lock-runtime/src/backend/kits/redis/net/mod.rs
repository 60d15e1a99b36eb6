//! Connections to a server: made, checked, given up and replaced. This module knows nothing of locks.

mod cluster;
mod connection;
mod connections;
mod dial;
pub(crate) mod examine;
pub(crate) mod fitness;
mod greeting;
mod place;
mod port;
mod script;
mod sentinel;
mod sentinels;
mod server;
mod slot_table;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod topology;
mod verdict;

pub(crate) use self::{
    cluster::{Cluster, ClusterSettings},
    connection::{Connection, Pushes},
    connections::{Connections, Service},
    script::Script,
    sentinels::SentinelSet,
    server::Server,
    slot_table::Address,
};
