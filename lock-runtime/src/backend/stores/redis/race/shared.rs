//! The state that all locks of one store share.

use std::time::Duration;

use super::{super::foreign::Foreign, held::HeldOwners, nodes::Nodes};

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) nodes: Nodes,
    pub(crate) rules: Rules,
    pub(super) held: HeldOwners,
    pub(super) foreign: Foreign,
}

impl Shared {
    pub(crate) fn of(nodes: Nodes, rules: Rules) -> Self {
        Self { nodes, rules, held: HeldOwners::default(), foreign: Foreign::default() }
    }
}

/// What the fleet agrees upon: all clients of the nodes must have the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Whether a node has a vote as soon as it was started.
    pub(crate) durable: bool,
    /// The longest lease of all clients.
    pub(crate) max_ttl: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self { durable: false, max_ttl: Duration::from_secs(60) }
    }
}
