//! The storage format of this library's own locks on a Redis server: the names of the keys beside a holder's key, and
//! the owners.
//!
//! As long as a lock is held, its holder's key exists, whatever the format or the mode, so different versions of this
//! library always exclude each other. Versions with the same format also share queues and fences. A version with
//! another format keeps its own queue, and treats a holder of this format as a foreign client.
//!
//! In the text of an owner, the letter after the version of the format stands for the mode. An owner with an unknown
//! letter is treated like an exclusive owner: clients wait for the owner, notify the owner, and grant the lock to the
//! owner as the only holder.

use std::{
    fmt::{self, Display},
    time::Duration,
};

use crate::{
    LockKey, OwnerToken,
    backend::{Mode, common::hex},
    key::{HashTag, hash_tag},
};

/// The version of the storage format, by which processes with different formats recognize each other.
pub(crate) const FORMAT: &str = "1";

/// A stand-in for `std::fmt::from_fn` of Rust 1.93.
struct Written<F>(F);

/// Returns a value whose `Display` is `write`.
pub(crate) fn written(write: impl Fn(&mut fmt::Formatter<'_>) -> fmt::Result) -> impl Display {
    Written(write)
}

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> Display for Written<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)(f)
    }
}

/// Returns the name of a key that stands next to the holder's key, such as the key of the queue.
pub(crate) fn beside(key: &LockKey, what: &'static str) -> impl Display {
    written(move |f| {
        let stored = key.stored();
        match hash_tag(stored) {
            // A name with its own hash tag keeps that tag; otherwise, the whole name becomes the tag.
            HashTag::Tag | HashTag::Malformed => write!(f, "{stored}:~{FORMAT}:{what}"),
            HashTag::None => write!(f, "{}{{{stored}}}:~{FORMAT}:{what}", key.prefix()),
        }
    })
}

/// Returns the letter that stands for a mode.
pub(crate) fn letter(mode: Mode) -> char {
    match mode {
        Mode::Exclusive => 'x',
    }
}

/// Returns the part of an owner's text that distinguishes the owners of a process.
pub(crate) fn token(token: OwnerToken) -> impl Display {
    written(move |f| {
        let mut digits = [0; 32];
        for (two, byte) in digits.chunks_exact_mut(2).zip(token.expose().to_be_bytes()) {
            two.copy_from_slice(&hex::digits(byte));
        }
        f.write_str(str::from_utf8(&digits).unwrap_or_default())
    })
}

/// Returns a length in the unit of Redis, whole milliseconds.
pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_beside_a_holder_stays_under_the_prefix_and_in_its_slot() {
        let key = LockKey::with_prefix("lock:", "user:42").expect("valid");
        assert_eq!(beside(&key, "queue").to_string(), "lock:{lock:user:42}:~1:queue");
        assert_eq!(beside(&key, "places").to_string(), "lock:{lock:user:42}:~1:places");
    }

    #[test]
    fn a_hash_tag_of_its_own_is_kept() {
        let key = LockKey::with_prefix("lock:", "{acme}:orders").expect("valid");
        assert_eq!(beside(&key, "queue").to_string(), "lock:{acme}:orders:~1:queue");
        // The scripts, too, decide by the first brace.
        let key = LockKey::with_prefix("{app}:", "{acme}:orders").expect("valid");
        assert_eq!(beside(&key, "queue").to_string(), "{app}:{acme}:orders:~1:queue");
    }
}
