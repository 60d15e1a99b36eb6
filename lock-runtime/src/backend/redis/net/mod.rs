//! Connections to a server: made, checked, given up and replaced. Nothing here knows what a lock is.

mod connection;
mod connections;
mod fitness;
mod script;
mod server;
pub(crate) mod server_clock;

pub(crate) use self::{
    connection::{Connection, Pushes},
    connections::{Connections, Service},
    script::Script,
    server::Server,
};
