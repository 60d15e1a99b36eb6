//! The state that all locks of one store share.

use super::{config::Rules, held::HeldOwners, nodes::Nodes};

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) nodes: Nodes,
    pub(super) rules: Rules,
    pub(super) held: HeldOwners,
}
