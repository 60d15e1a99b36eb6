//! The next holder: a waiter that has put itself into the row, and is granted the lock by the release.
//!
//! It learns that from the notification, and has waited for no statement of its own. Any user of the database can send a
//! notification, so that of a grant proves that it was made from the row, which only the next holder can check. And it
//! may have been delayed for any length of time. So the lease is dated by the youngest request after which the row named
//! this waiter, and never by the arrival: the grant came after it, because the request had locked the row, as a release
//! does. The queue of the Redis stores obeys the same rules.

use std::{str::FromStr, time::Duration};

use sha2::{Digest, Sha256};

use crate::{
    OwnerToken,
    time::{clock::Instant, deadline::valid_until},
};

/// How long a waiter has to use or to renew what a release grants to it, and how long others wait if it has died. Longer
/// than the time between two requests in which a waiter would find the grant whose notification was lost.
pub(super) const CLAIM_WINDOW: Duration = Duration::from_secs(2);

/// What a waiter knows of its place in the row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// When the youngest request was sent after which the row named this waiter.
    pub(super) proven: Instant,
    /// The version of the row then.
    pub(super) seen: u64,
    /// The length of the lease that a release grants.
    pub(super) lease: Duration,
}

/// The notification of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pushed {
    version: u64,
    proof: [u8; 32],
}

/// What the notification of a grant means to one waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Push {
    /// The lock is this waiter's, with this version and until then.
    Ours { version: u64, valid_until: Instant },
    /// It is another waiter's, or is older than the waiter's last request, or was not sent by a release.
    NotOurs,
}

impl Place {
    /// Judges a notification for the waiter with this owner token.
    pub(super) fn judge(&self, pushed: Pushed, owner: OwnerToken) -> Push {
        if pushed.proof != proof(owner, pushed.version) || pushed.version <= self.seen {
            return Push::NotOurs;
        }
        Push::Ours { version: pushed.version, valid_until: valid_until(self.proven, self.lease) }
    }
}

/// See `sql/hand_over.sql`.
fn proof(owner: OwnerToken, version: u64) -> [u8; 32] {
    let proven = Sha256::new().chain_update(owner.expose().to_be_bytes()).chain_update(version.to_be_bytes());
    proven.finalize().into()
}

impl FromStr for Pushed {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (version, hex) = text.split_once(' ').ok_or(())?;
        if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(());
        }
        let mut proof = [0; 32];
        for (byte, at) in proof.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&hex[at..at + 2], 16).map_err(|_| ())?;
        }
        Ok(Self { version: version.parse().map_err(|_| ())?, proof })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::common::hex;

    const SEC: Duration = Duration::from_secs(1);

    fn pushed(version: u64, owner: OwnerToken) -> Pushed {
        format!("{version} {}", hex::text(&proof(owner, version))).parse().unwrap()
    }

    #[test]
    fn a_grant_is_dated_by_the_request_before_it_and_never_by_its_arrival() {
        let (owner, proven) = (OwnerToken::random(), Instant::now());
        let place = Place { proven, seen: 7, lease: 2 * SEC };
        let ours = Push::Ours { version: 8, valid_until: valid_until(proven, 2 * SEC) };
        assert_eq!(place.judge(pushed(8, owner), owner), ours);
    }

    #[test]
    fn a_grant_that_is_old_or_another_s_or_forged_is_not_ours() {
        let owner = OwnerToken::random();
        let place = Place { proven: Instant::now(), seen: 7, lease: SEC };
        assert_eq!(place.judge(pushed(7, owner), owner), Push::NotOurs);
        assert_eq!(place.judge(pushed(8, OwnerToken::random()), owner), Push::NotOurs);
        // A proof of another version.
        let forged = Pushed { version: 9, ..pushed(8, owner) };
        assert_eq!(place.judge(forged, owner), Push::NotOurs);
    }

    #[test]
    fn whatever_is_sent_is_read_or_refused() {
        for text in [
            "",
            "8",
            "8 ",
            "8 00",
            "x 00",
            &format!("8 {}", "é".repeat(32)),
            &format!("8 {}", "+0".repeat(32)),
        ] {
            assert!(text.parse::<Pushed>().is_err(), "{text}");
        }
    }
}
