//! The scripts of a node. Each is one atomic step.

use super::{
    redlock::Redlock,
    state::Node,
    variant::{Break, Form},
};

impl Redlock {
    /// Returns the token of the owner's tenure, which begins now or has begun; `None` while another owner holds the lock,
    /// and while the node does not vote. `time` is the node's own.
    pub(crate) fn acquire(&self, node: &mut Node, owner: u8, proposal: u8, time: u8) -> Option<u8> {
        match node.holder {
            Some(holder) if holder == owner => {}
            Some(_) => return None,
            None if node.wait > 0 => return None,
            None => {
                let latest = match self.variant.floor {
                    Some(floor) if !self.variant.breaks(Break::AnyProposal) => time + self.ticks(floor.slack),
                    _ => u8::MAX,
                };
                node.holder = Some(owner);
                node.fence = proposal.min(latest).max(time).max(node.counter + 1);
                if self.variant.form == Form::OneRound {
                    node.counter = node.fence;
                }
            }
        }
        node.px = self.lease();
        Some(node.fence)
    }

    /// Raises the counter and the owner's tenure to the token. Returns whether it did.
    ///
    /// A tenure with a larger token began after the answers from which this token was made, and is refused.
    pub(crate) fn write_back(&self, node: &mut Node, owner: u8, token: u8) -> bool {
        let is_owner = node.holder == Some(owner);
        let is_newer = node.fence > token && !self.variant.breaks(Break::WriteBackByOwner);
        if (!is_owner || is_newer) && !self.variant.breaks(Break::WriteBackUncompared) {
            return false;
        }
        if is_owner {
            node.fence = node.fence.max(token);
        }
        node.counter = node.counter.max(token);
        true
    }

    /// A write-back that also renews the lease, and begins a tenure where no owner holds the lock and no newer token was
    /// granted. While a node does not vote, it begins none: another client may count a vote from before the loss.
    pub(crate) fn extend(&self, node: &mut Node, owner: u8, token: u8) -> bool {
        let joins = node.holder.is_none();
        let is_newer = node.fence > token && !(joins && self.variant.breaks(Break::RejoinWithoutCheck));
        let waits = joins && node.wait > 0 && !self.variant.breaks(Break::RejoinWhileWaiting);
        if is_newer || waits || !joins && node.holder != Some(owner) {
            return false;
        }
        (node.holder, node.fence, node.px) = (Some(owner), token, self.lease());
        let raises = !self.variant.breaks(if joins {
            Break::RejoinWithoutRaise
        } else {
            Break::ExtensionOnlyCompares
        });
        if raises {
            node.counter = node.counter.max(token);
        }
        true
    }
}
