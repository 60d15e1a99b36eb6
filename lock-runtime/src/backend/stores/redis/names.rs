//! The names that a lock has on the server.
//!
//! The holder's key is exactly the prefix and the lock's name, so that any client that follows the published recipe
//! (`SET key token NX PX`, compare-and-delete) excludes us and is excluded by us. The keys of the lock's queue stay
//! under the prefix, for an ACL, and in the same hash slot. No lock can have such a name, because `:~` is refused.
//!
//! As long as a lock is held, its holder's key exists, whatever the format or the mode: so different versions of this
//! library always exclude each other. Within one format they share queues and fences. The letter behind the format is
//! the mode; an owner with an unknown letter is waited for, notified and granted the lock like any other, as the only
//! holder. A version with another format keeps its own queue, and treats a holder of this format as a foreign client.

use std::{
    fmt::{self, Display, Write},
    str::FromStr,
    time::Duration,
};

use crate::{
    LockKey, OwnerToken,
    backend::{
        Mode,
        common::{hex, host},
    },
    key::{HashTag, hash_tag},
};

/// The version of the format on the server; a new one lets old and new processes tell each other apart.
pub(crate) const FORMAT: &str = "1";

/// A stand-in for `std::fmt::from_fn` of Rust 1.93.
struct Written<F>(F);

fn written(write: impl Fn(&mut fmt::Formatter<'_>) -> fmt::Result) -> impl Display {
    Written(write)
}

impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> Display for Written<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)(f)
    }
}

/// Returns the name of a key that stands next to the holder's: `what` is `queue` or `places`.
pub(crate) fn beside(key: &LockKey, what: &'static str) -> impl Display {
    written(move |f| {
        let stored = key.stored();
        match hash_tag(stored) {
            // A name with a hash tag of its own keeps it; otherwise the whole name becomes the tag.
            HashTag::Tag | HashTag::Malformed => write!(f, "{stored}:~{FORMAT}:{what}"),
            HashTag::None => write!(f, "{}{{{stored}}}:~{FORMAT}:{what}", key.prefix()),
        }
    })
}

/// Returns the counter of fences of a lock, which is one for all locks under a prefix.
pub(crate) fn fence(key: &LockKey) -> Fence<'_> {
    Fence::under(key.prefix())
}

/// A counter of fences.
///
/// Locks with the same counter may share a call; the user's permissions are checked for each counter, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fence<'a> {
    prefix: &'a str,
}

impl<'a> Fence<'a> {
    /// Returns the counter of the locks under `prefix`.
    pub(crate) const fn under(prefix: &'a str) -> Self {
        Self { prefix }
    }
}

impl Display for Fence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{FORMAT}:fence", Root(self.prefix))
    }
}

/// Returns the channel on which a process is notified about locks under `prefix`.
pub(crate) fn inbox(prefix: &str, id: &str) -> String {
    format!("{}~{FORMAT}:inbox:{id}", Root(prefix))
}

/// A prefix as the beginning of a name that no lock can have under any prefix: the `~` after it comes first, or
/// behind `:`.
struct Root<'a>(&'a str);

impl Display for Root<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(prefix) = self;
        f.write_str(prefix)?;
        if prefix.is_empty() || prefix.ends_with(':') { Ok(()) } else { f.write_str(":") }
    }
}

/// Returns an owner as the server knows it, `1x:<pid>@<host>:<inbox>:<token>`: format and mode, process, and token.
pub(crate) fn owner(mode: Mode, process: &str, token: OwnerToken) -> impl Display {
    written(move |f| {
        owners(mode, process).fmt(f)?;
        self::token(token).fmt(f)
    })
}

/// Returns the beginning that all owners of a process in one mode share.
pub(crate) fn owners(mode: Mode, process: &str) -> impl Display {
    written(move |f| {
        let letter = match mode {
            Mode::Exclusive => 'x',
        };
        // Faster than `write!`, for the same reason as `hex::digits`.
        f.write_str(FORMAT)?;
        f.write_char(letter)?;
        [":", process, ":"].into_iter().try_for_each(|part| f.write_str(part))
    })
}

/// Returns the part that tells an owner from the others of its process.
pub(crate) fn token(token: OwnerToken) -> impl Display {
    written(move |f| {
        let mut digits = [0; 32];
        for (two, byte) in digits.chunks_exact_mut(2).zip(token.expose().to_be_bytes()) {
            two.copy_from_slice(&hex::digits(byte));
        }
        f.write_str(str::from_utf8(&digits).unwrap_or_default())
    })
}

/// Returns the value of the holder's key while a grant lasts.
pub(crate) fn grant(mode: Mode, process: &str, token: OwnerToken, fence: u64) -> impl Display {
    written(move |f| {
        owner(mode, process, token).fmt(f)?;
        f.write_str(":")?;
        fence.fmt(f)
    })
}

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
    /// It is computed from the parsed message, so nothing can be appended to an overheard one.
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

/// Returns a length in the unit of Redis, whole milliseconds.
pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the part that all owners of this process share: `<pid>@<host>`, for operators, and its inbox.
///
/// The text before the colon is free, as long as it has no colon itself, so a label may follow the host.
pub(crate) fn process(inbox_id: &str) -> String {
    format!("{}@{}:{inbox_id}", std::process::id(), host::name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_beside_a_holder_stays_under_the_prefix_and_in_its_slot() {
        let key = LockKey::with_prefix("lock:", "user:42").expect("valid");
        assert_eq!(beside(&key, "queue").to_string(), "lock:{lock:user:42}:~1:queue");
        assert_eq!(beside(&key, "places").to_string(), "lock:{lock:user:42}:~1:places");
        assert_eq!(fence(&key).to_string(), "lock:~1:fence");
        assert_eq!(inbox("lock:", "ab"), "lock:~1:inbox:ab");
        assert_eq!(inbox("", "ab"), "~1:inbox:ab");
        assert_eq!(inbox("app", "ab"), "app:~1:inbox:ab", "`app~1:inbox:ab` could be a lock");
    }

    #[test]
    fn a_hash_tag_of_its_own_is_kept() {
        let key = LockKey::with_prefix("lock:", "{acme}:orders").expect("valid");
        assert_eq!(beside(&key, "queue").to_string(), "lock:{acme}:orders:~1:queue");
        // The scripts, too, decide by the first brace.
        let key = LockKey::with_prefix("{app}:", "{acme}:orders").expect("valid");
        assert_eq!(beside(&key, "queue").to_string(), "{app}:{acme}:orders:~1:queue");
    }

    #[test]
    fn an_owner_begins_with_the_format_the_mode_and_the_process() {
        let process = process("0123456789abcdef");
        let owner = owner(Mode::Exclusive, &process, OwnerToken::from(255)).to_string();
        assert!(owner.starts_with(&format!("1x:{}@", std::process::id())), "{owner}");
        assert!(owner.ends_with(":0123456789abcdef:000000000000000000000000000000ff"), "{owner}");
    }
}
