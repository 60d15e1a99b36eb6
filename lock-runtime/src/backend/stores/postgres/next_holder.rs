//! The next holder: a waiter that has put itself into the row, and is granted the lock by the release.
//!
//! The next holder learns of its grant from the notification, and waits for no statement of its own. Which
//! notifications a waiter believes, and for how long, is model-checked (`tests/model/row`). The rules:
//!
//! * **Any user of the database can send a notification**, and a user who may read the table, the server's statistics
//!   or its log sees the holder's `owner`, which stands in the row and in the statements. The `owner` is a hash, and
//!   proves nothing. The notification of a grant contains the secret behind this hash, and the next holder knows the
//!   hash: it saw the `owner` in the row when it took its place. No statement before the release contains the secret,
//!   and the releasing process stops using the lease before it sends the release.
//! * **A notification may have been delayed for any length of time.** Therefore the waiter counts the lease from the
//!   sending of its latest request after which the row named the waiter as the next holder ([`PlaceProof`]). The grant
//!   came after this request: requests and releases lock the row, so this request would have found an earlier grant.
//! * **The secret may be seen before the release that contains it is applied**: in the server's log (`log_statement`),
//!   while the statement waits for a synchronous replica, or if the connection dies and the statement is never applied.
//!   A notification that is forged with such a secret must not make two holders. The releasing process no longer uses
//!   the lock, so the danger is that the server grants the lock to a third client while the waiter relies on the forged
//!   grant. The server can grant the lock to no third client while the place stands (`next_until`) and the holder's
//!   lease lasts (`expires_at`): the lock belongs to the holder until a statement ends the hold, and each statement
//!   that shows the secret grants the lock to the next holder. Therefore, the waiter relies on the grant until
//!   `next_until` or `expires_at`, whichever is earlier. Both times are read by the request that proved the place, and
//!   neither is set to an earlier time while the place stands, unless the server's clock is set back. The first renewal
//!   compares the owner, and so finds out whether the server has made the grant.
//! * For the same reason, two kinds of releases **show no secret**. The first kind is sent while an earlier release of
//!   the hold may still be executed: the earlier release may be `release.sql`, which ends the hold without a grant. The
//!   second kind ends a hold with which a transaction has checked in, because such a release is applied only after the
//!   end of the transaction. In both cases, the next holder has to ask. So it has when an
//!   operator ends the hold by force (`sql/force.sql`), who knows no secret: that statement, too, grants the lock to the
//!   next holder while the place stands.
//! * **The version is not proved**: a user who has read the secret may have chosen the version. A version is a time of
//!   the server's clock in microseconds. If a version is later than the time at which the server last confirmed the
//!   waiter's place, and not later than the server's clock, then even a forged version is larger than all earlier
//!   tokens and smaller than all later tokens. A version that is only larger than the version in the row would
//!   not do: an earlier waiter, which has left its place since, may have relied on a forged grant, whose version is in
//!   no row. This does not hold beside an operator who ends the grant of the next holder **by force** before the next
//!   holder knows of its grant: until `sure` has passed, a version that a reader forges may then be as large as the token
//!   of a later holder.

use std::{str::FromStr, time::Duration};

use sha2::{Digest, Sha256};

use crate::{
    FencingToken, OwnerToken,
    backend::{common::place_proof::PlaceProof, kits::postgres::uuid::Uuid},
    time::clock::Instant,
};

/// Upper bound on the lease that a release grants. Before this lease ends, the waiter has to renew it or ask for the
/// lock again; if the waiter has died, others wait for the end. The bound is longer than the time between two requests,
/// so that a waiter finds a grant whose notification was lost.
pub(super) const CLAIM_WINDOW: Duration = Duration::from_secs(2);

/// A waiter's knowledge of its place in the row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The youngest request after which the row named this waiter, with the version that this request found in the row, or
    /// the server's time if that is later.
    pub(super) proof: PlaceProof,
    /// The holder that this request found.
    pub(super) holder: OwnerToken,
    /// Suppose that a release shows the secret, and is perhaps never applied. Even then, the server grants the lock to
    /// no other client until this time has passed since the sending of the request in `proof`.
    pub(super) sure: Duration,
}

/// The notification of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pushed {
    pub(super) version: u64,
    /// The secret of the holder that released the lock.
    secret: Secret,
}

impl Place {
    /// Returns the deadline of the grant that a notification announces to this waiter. The notification arrives now,
    /// when the server's clock shows `us` or a later time.
    ///
    /// Returns `None` if the notification proves no new grant: the version is not new or not possible, or the secret is
    /// not the secret of the holder that the last proof found.
    pub(super) fn judge(&self, pushed: Pushed, us: u64) -> Option<Instant> {
        let Pushed { version, secret } = pushed;
        // If the server's clock was set back, and is behind the versions, each version is one more than the version
        // before. The server makes no version that is larger than the largest fencing token.
        let first = self.proof.last + 1;
        let last = us.max(first).min(FencingToken::LAST_MICROS);
        if secret.owner() != self.holder || version > last {
            return None;
        }
        self.proof.deadline(version, self.sure)
    }
}

/// Reads `<version> <secret>`, which `sql/hand_over.sql` and `sql/release_many.sql` send after the hash of the lock's
/// name.
impl FromStr for Pushed {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (version, secret) = text.split_once(' ').ok_or(())?;
        Ok(Self { version: version.parse().map_err(|_| ())?, secret: Secret::of(secret.parse::<Uuid>()?) })
    }
}

/// The secret of one acquisition. Only the statement that ends the hold contains the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Secret(OwnerToken);

impl Secret {
    pub(super) fn random() -> Self {
        Self(OwnerToken::random())
    }

    /// Returns the secret of a notification.
    pub(super) fn of(Uuid(number): Uuid) -> Self {
        Self(OwnerToken::of(number))
    }

    /// Returns the owner of this acquisition: the first 128 bits of the hash.
    pub(super) fn owner(self) -> OwnerToken {
        let hash = Sha256::digest(self.0.expose().to_be_bytes());
        let (first, _) = hash.split_at(16);
        OwnerToken::of(first.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)))
    }

    pub(crate) fn uuid(self) -> Uuid {
        Uuid(self.0.expose())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::deadline::valid_until;

    const SEC: Duration = Duration::from_secs(1);
    /// The server's time.
    const NOW: u64 = 100;

    fn place(secret: Secret) -> Place {
        let proof = PlaceProof { sent: Instant::now(), last: 7 };
        Place { proof, holder: secret.owner(), sure: 2 * SEC }
    }

    #[test]
    fn a_grant_is_dated_by_the_request_before_it_and_never_by_its_arrival() {
        let secret = Secret::random();
        let place = place(secret);
        let deadline = valid_until(place.proof.sent, 2 * SEC);
        assert_eq!(place.judge(Pushed { version: 8, secret }, NOW), Some(deadline));
    }

    #[test]
    fn a_grant_that_is_old_or_another_s_or_forged_is_not_ours() {
        let secret = Secret::random();
        let place = place(secret);
        assert_eq!(place.judge(Pushed { version: 7, secret }, NOW), None);
        assert_eq!(place.judge(Pushed { version: 8, secret: Secret::random() }, NOW), None);
        // The owner, as the row shows it.
        let owner = Secret::of(Uuid(secret.owner().expose()));
        assert_eq!(place.judge(Pushed { version: 8, secret: owner }, NOW), None);
    }

    #[test]
    fn no_version_is_believed_that_the_server_cannot_have_made_yet() {
        let secret = Secret::random();
        let judge = |version, us| place(secret).judge(Pushed { version, secret }, us).is_some();
        assert!(judge(NOW, NOW) && !judge(NOW + 1, NOW) && !judge(u64::MAX, NOW));
        // The clock was set back, or is unknown.
        assert!(judge(8, 3) && !judge(9, 3) && judge(8, 0));
        // Tokens end before versions do.
        let last = FencingToken::LAST_MICROS;
        assert!(judge(last, u64::MAX) && !judge(last + 1, u64::MAX));
        let proof = PlaceProof { last, ..place(secret).proof };
        let used_up = Place { proof, ..place(secret) };
        assert_eq!(used_up.judge(Pushed { version: last + 1, secret }, NOW), None);
    }

    #[test]
    fn whatever_is_sent_is_read_or_refused() {
        let secret = Secret::of(Uuid(1));
        for text in ["8 00000000-0000-0000-0000-000000000001", "8 00000000000000000000000000000001"] {
            assert_eq!(text.parse(), Ok(Pushed { version: 8, secret }), "{text}");
        }
        for text in [
            "",
            "8",
            "8 ",
            "8 00",
            "x 00",
            "-8 00000000000000000000000000000001",
            &format!("8 {}", "é".repeat(16)),
            &format!("8 {}", "+0".repeat(16)),
        ] {
            assert!(text.parse::<Pushed>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_owner_is_a_hash_that_does_not_show_the_secret() {
        let secret = Secret::of(Uuid(0));
        // The hash of sixteen zero bytes: 374708fff7719dd5979ec875d56cd2286f6d3cf7ec317a3b25632aab28ec37bb.
        assert_eq!(secret.owner().expose(), 0x3747_08ff_f771_9dd5_979e_c875_d56c_d228);
        assert_ne!(Secret::random().owner(), Secret::random().owner());
        let shown = format!("{:?}", Secret::of(Uuid(0x1234_5678_9abc_def0)));
        assert!(
            !shown.contains("9abc") && !shown.contains(&0x1234_5678_9abc_def0_u64.to_string()),
            "{shown}"
        );
    }
}
