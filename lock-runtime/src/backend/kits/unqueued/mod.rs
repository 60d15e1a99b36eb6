//! Locks without a queue: clients are notified of a release and race for the lock, on one server or on a majority of
//! several.
//!
//! A [`Protocol`](protocol::Protocol) defines the keys and scripts of a kind of store. Attempts, holds, renewals and
//! the handling of unanswered requests are common to all kinds.

mod attempt;
mod claim;
mod error;
mod examine;
mod fleet;
mod held;
mod hold;
mod inbox;
mod left_free;
mod look;
mod node;
mod nodes;
mod operate;
mod operation;
mod pending_releases;
pub(crate) mod protocol;
mod quorum;
mod renewal;
mod scan;
mod shared;
mod sighting;
mod watch;

pub(in crate::backend) use self::shared::Shared;
pub(crate) use self::{
    attempt::acquire,
    examine::examine,
    fleet::FleetSettings,
    nodes::Nodes,
    operate::{inspect, revoke},
    scan::scan,
    sighting::{SeenGrant, Sighting},
};
