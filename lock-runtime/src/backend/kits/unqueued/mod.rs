//! Locks without a queue: clients are told of a release and race for the lock, on one server or on a majority of several.
//!
//! A [`Protocol`](protocol::Protocol) says what stands on the servers. The rest is common: attempts, holds, renewals, and
//! what happens to requests without an answer.

mod attempt;
mod claim;
mod error;
mod held;
mod hold;
mod leftovers;
mod node;
mod nodes;
mod operation;
pub(crate) mod protocol;
mod quorum;
mod renewal;
mod rules;
mod shared;
mod watch;

pub(crate) use self::{attempt::acquire, nodes::Nodes, renewal::renew, rules::Rules, shared::Shared};
