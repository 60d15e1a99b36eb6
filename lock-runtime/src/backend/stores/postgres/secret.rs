//! The secret of an acquisition, and the owner that is made of it.
//!
//! Any user who may read the table, the server's statistics or its log sees the owner, which stands in the row and in
//! the statements. The owner is a hash, and proves nothing. The secret proves to the next holder that a notification
//! comes from the release: only the release contains the secret, when the lease is already dead in its process. See
//! `next.rs`.

use sha2::{Digest, Sha256};

use crate::{OwnerToken, backend::kits::postgres::uuid::Uuid};

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
