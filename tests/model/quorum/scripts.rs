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
                node.px = self.lease();
                if self.variant.form == Form::OneRound {
                    node.counter = node.fence;
                }
            }
        }
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

    /// Renews the lease of this owner, raises the counter to the token, and gives the lease to a node on which no owner
    /// holds the lock, unless its counter is larger: then it may have made a newer grant. While a node does not vote, it
    /// is given none: another client may count a vote from before the loss. Returns whether this owner has the lease.
    pub(crate) fn extend(&self, node: &mut Node, owner: u8, token: u8) -> bool {
        let joins = node.holder.is_none();
        let raises = if joins {
            let is_newer = node.counter > token && !self.variant.breaks(Break::RejoinWithoutCheck);
            let waits = node.wait > 0 && !self.variant.breaks(Break::RejoinWhileWaiting);
            if is_newer || waits {
                return false;
            }
            (node.holder, node.fence) = (Some(owner), token);
            !self.variant.breaks(Break::RejoinWithoutRaise)
        } else {
            let is_newer = node.fence > token && !self.variant.breaks(Break::ExtensionByOwner);
            let is_marked = node.marked && !self.variant.breaks(Break::ExtensionOfMarked);
            if node.holder != Some(owner) || is_newer || is_marked {
                return false;
            }
            !self.variant.breaks(Break::ExtensionOnlyCompares)
        };
        node.px = self.lease();
        if raises {
            node.counter = node.counter.max(token);
        }
        true
    }

    /// Marks the hold of this owner, and raises the counter above its token, so that the node is not given the lease again
    /// after the end of the present one. Returns whether this owner holds the lock.
    pub(crate) fn revoke(&self, node: &mut Node, owner: u8, token: u8) -> bool {
        let any = node.holder.is_some() && self.variant.breaks(Break::MarkUncompared);
        if node.holder != Some(owner) && !any {
            return false;
        }
        if !self.variant.breaks(Break::MarkWithoutRaise) {
            node.counter = node.counter.max(node.fence.max(token) + 1);
        }
        node.marked = true;
        if self.variant.breaks(Break::MarkFrees) {
            self.remove_holder(node);
        }
        true
    }

    /// The end of the holder's key, of which the mark is a part.
    pub(crate) fn remove_holder(&self, node: &mut Node) {
        (node.holder, node.fence, node.px) = (None, 0, 0);
        node.marked &= self.variant.breaks(Break::MarkOutlivesHold);
    }
}
