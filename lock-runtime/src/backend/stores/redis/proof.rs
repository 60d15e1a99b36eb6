//! The proof that a grant message comes from the script that granted the lock.

use std::time::Duration;

use sha1_smol::{Digest, Sha1};

use crate::{
    OwnerToken,
    backend::kits::redis::format::{millis, token},
};

/// The terms of a grant, as the waiter is notified of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) fence: u64,
    /// The length of the lease.
    pub(crate) px: Duration,
    /// How much longer the lock is remembered as used by foreign clients.
    pub(crate) foreign: Duration,
}

impl Terms {
    /// Returns the proof that a message with these terms comes from a script that read the place of `owner`: see
    /// `grant.lua`.
    ///
    /// The proof covers each value of the message as it was understood, so an overheard message that was changed or
    /// extended has another proof.
    pub(crate) fn proof(&self, owner: OwnerToken) -> Digest {
        let Self { fence, px, foreign } = self;
        let (px, foreign) = (millis(*px), millis(*foreign));
        Sha1::from(format!("{}{fence} {px} {foreign}", token(owner))).digest()
    }
}
