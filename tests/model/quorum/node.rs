//! The scripts of a node. Each is one atomic step.

use super::state::Node;

/// The arguments of an acquisition, and the node's rules for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acquisition {
    pub(crate) owner: u8,
    /// The lower bound on the new token: the proposal, and the node's time.
    pub(crate) least: u8,
    /// Whether the counter is raised, or only read.
    pub(crate) raises: bool,
    pub(crate) px: u8,
}

/// The arguments of a write-back or an extension, and the node's rules for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirmation {
    pub(crate) owner: u8,
    pub(crate) token: u8,
    /// Whether the holder is compared at all.
    pub(crate) compares_owner: bool,
    /// Whether the token of a present tenure is compared.
    pub(crate) compares_fence: bool,
    /// Whether a present tenure raises the counter.
    pub(crate) raises: bool,
}

impl Node {
    /// Returns the token of the owner's tenure, which begins now or has begun; `None` while another holds the lock.
    pub(crate) fn acquire(&mut self, acquisition: Acquisition) -> Option<u8> {
        match self.holder {
            Some(holder) if holder == acquisition.owner => {}
            Some(_) => return None,
            None if self.wait > 0 => return None,
            None => {
                self.holder = Some(acquisition.owner);
                self.fence = acquisition.least.max(self.counter + 1);
                if acquisition.raises {
                    self.counter = self.fence;
                }
            }
        }
        self.px = acquisition.px;
        Some(self.fence)
    }

    /// Raises the tenure of the owner to the token. Refuses a tenure with a larger token: it began after the answers
    /// from which the token was made.
    pub(crate) fn confirm(&mut self, confirmation: Confirmation) -> bool {
        let Confirmation { owner, token, compares_owner, compares_fence, raises } = confirmation;
        if compares_owner && (self.holder != Some(owner) || compares_fence && self.fence > token) {
            return false;
        }
        if self.holder == Some(owner) {
            self.fence = self.fence.max(token);
        }
        if raises {
            self.counter = self.counter.max(token);
        }
        true
    }

    /// Begins a tenure of a hold that was granted elsewhere. Refuses if a newer token was granted here.
    pub(crate) fn rejoin(&mut self, owner: u8, token: u8, checks: bool, raises: bool) -> bool {
        if self.holder.is_some() || checks && self.fence > token {
            return false;
        }
        self.holder = Some(owner);
        self.fence = token;
        if raises {
            self.counter = self.counter.max(token);
        }
        true
    }

    pub(crate) fn remove_holder(&mut self) {
        (self.holder, self.px) = (None, 0);
    }

    /// A restart without data.
    pub(crate) fn lose_data(&mut self, wait: u8) {
        self.remove_holder();
        (self.fence, self.counter, self.wait) = (0, 0, wait);
    }
}
