//! The state that all locks of one store share.

use super::{super::redis::foreign::Foreign, config::Rules, held::HeldOwners, nodes::Nodes};

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) nodes: Nodes,
    pub(super) rules: Rules,
    pub(super) held: HeldOwners,
    pub(super) foreign: Foreign,
}

impl Shared {
    pub(super) fn of(nodes: Nodes, rules: Rules) -> Self {
        Self { nodes, rules, held: HeldOwners::default(), foreign: Foreign::default() }
    }
}
