//! The proof that a grant message comes from the script that granted the lock.

use std::{fmt, str::FromStr, time::Duration};

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
    /// The proof is computed from the parsed message, so nothing can be appended to an overheard message.
    pub(crate) fn proof(&self, owner: OwnerToken) -> Proof {
        let Self { fence, px, foreign } = self;
        let (px, foreign) = (millis(*px), millis(*foreign));
        let proven = format!("{}{fence} {px} {foreign}", token(owner));
        Proof(sha1_smol::Sha1::from(proven).digest().bytes())
    }
}

/// A proof, received or computed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proof([u8; 20]);

impl FromStr for Proof {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        text.parse::<sha1_smol::Digest>().map(|digest| Self(digest.bytes())).map_err(drop)
    }
}

/// Shows no digits, although a proof is no secret: it is good for its own grant only.
impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof")
    }
}
