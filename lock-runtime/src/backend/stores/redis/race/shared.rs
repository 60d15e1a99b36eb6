//! The state that all locks of one store share.

use super::{super::foreign::Foreign, held::HeldOwners, nodes::Nodes, rules::Rules};

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
