//! The state that all locks of one store share.

use super::{held::HeldOwners, left_free::LeftFree, nodes::Nodes};
use crate::backend::kits::redis::foreign::Foreign;

#[derive(Debug)]
pub(in crate::backend) struct Shared {
    pub(in crate::backend) nodes: Nodes,
    pub(super) held: HeldOwners,
    pub(super) foreign: Foreign,
    pub(super) left_free: LeftFree,
}

impl Shared {
    pub(crate) fn of(nodes: Nodes) -> Self {
        Self {
            nodes,
            held: HeldOwners::default(),
            foreign: Foreign::default(),
            left_free: LeftFree::default(),
        }
    }
}
