//! The digest of a name, as the server writes it, too.

use sha2::{Digest, Sha256};

use crate::backend::common::hex;

/// Returns the SHA-256 of a text in hexadecimal.
pub(crate) fn sha256(text: &str) -> String {
    hex::text(&Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The statements compute the same digest.
    #[test]
    fn a_digest_is_the_one_of_the_standard() {
        assert_eq!(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
