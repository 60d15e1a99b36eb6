//! The table of the locks.

use sha2::{Digest, Sha256};

use crate::backend::common::hex;

/// The statement that creates the table under its usual name.
pub(crate) const DDL: &str = include_str!("sql/table.sql");
/// Upper bound on the length of an identifier in bytes; the server cuts a longer identifier off.
const MAX_IDENTIFIER: usize = 63;

/// The table of the locks: an identifier, perhaps with a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table(String);

impl Default for Table {
    fn default() -> Self {
        Self("distributed_locks".into())
    }
}

impl Table {
    /// Reads a name as it would be written in SQL without quotes.
    pub(crate) fn from_name(name: &str) -> Result<Self, String> {
        let is_identifier = |part: &str| {
            let mut chars = part.chars();
            part.len() <= MAX_IDENTIFIER
                && chars.next().is_some_and(|c| c.is_ascii_lowercase() || c == '_')
                && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        let parts: Vec<_> = name.split('.').collect();
        if parts.len() > 2 || !parts.iter().all(|part| is_identifier(part)) {
            return Err(format!(
                "write `table` or `schema.table` in lower-case letters, digits and `_`, each at most \
                 {MAX_IDENTIFIER} bytes long"
            ));
        }
        Ok(Self(name.into()))
    }

    /// Returns the name as it is written in statements, in quotes, because the name may be a word of SQL.
    pub(crate) fn name(&self) -> String {
        self.0.split('.').map(|part| format!("\"{part}\"")).collect::<Vec<_>>().join(".")
    }

    /// Returns whether the name has a schema; a session looks up a name without a schema in its own way.
    pub(crate) fn has_schema(&self) -> bool {
        self.0.contains('.')
    }

    /// Returns the statement that creates the table.
    pub(crate) fn ddl(&self) -> String {
        without_comments(DDL).replace("distributed_locks", &self.name())
    }

    /// Returns the channel of the table's notifications. The channel contains only a part of the hash of the table's
    /// name, because the server limits the length of a channel.
    pub(crate) fn channel(&self) -> String {
        format!("lock_{}", &sha256(&self.0)[..16])
    }
}

/// Returns the SHA-256 of a text in hexadecimal. Notifications identify a lock by the SHA-256 of the lock's name, which
/// the statements compute, too.
pub(crate) fn sha256(text: &str) -> String {
    hex::text(&Sha256::digest(text))
}

/// Returns the text of a statement without the comments for its readers.
pub(crate) fn without_comments(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
    lines.collect::<Vec<_>>().join("\n")
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
