//! The names that a lock has on the server.
//!
//! The holder's key is exactly the prefix and the lock's name, so that any client that follows the published recipe
//! (`SET key token NX PX`, compare-and-delete) excludes us and is excluded by us. The keys of the lock's queue stay
//! under the prefix, for an ACL, and in the same hash slot. No lock can have the name of such a key, because `:~` is
//! refused in lock names.

use std::fmt::{self, Display};

use crate::{
    LockKey, OwnerToken,
    backend::{
        Mode,
        common::host,
        kits::redis::format::{FORMAT, owner, written},
    },
};

/// A domain: locks that may share a call, and that share two keys, the counter of fences and a key that exists while
/// one of the locks may have a queue. On one server, all locks under a prefix are a domain.
///
/// The user's permissions are checked for each domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Domain<'a> {
    prefix: &'a str,
}

impl<'a> Domain<'a> {
    /// Returns the domain of a lock.
    pub(crate) fn of(key: &'a LockKey) -> Self {
        Self::under(key.prefix())
    }

    /// Returns the domain of the locks under `prefix`.
    pub(crate) const fn under(prefix: &'a str) -> Self {
        Self { prefix }
    }

    /// Returns the counter of fences.
    pub(crate) fn fence(self) -> impl Display {
        self.shared("fence")
    }

    /// Returns the key that exists while a lock of the domain may have a queue.
    pub(crate) fn queues(self) -> impl Display {
        self.shared("queues")
    }

    fn shared(self, what: &'static str) -> impl Display {
        written(move |f| write!(f, "{}~{FORMAT}:{what}", Root(self.prefix)))
    }
}

/// Returns the channel on which a process is notified about locks under `prefix`.
pub(crate) fn inbox(prefix: &str, id: &str) -> String {
    format!("{}~{FORMAT}:inbox:{id}", Root(prefix))
}

/// A prefix, to which a final `:` is added unless the prefix is empty or has one. No lock has a name that begins with
/// this text and goes on with `~`.
struct Root<'a>(&'a str);

impl Display for Root<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(prefix) = self;
        f.write_str(prefix)?;
        if prefix.is_empty() || prefix.ends_with(':') { Ok(()) } else { f.write_str(":") }
    }
}

/// Returns the value of the holder's key while a grant lasts.
pub(crate) fn grant(mode: Mode, process: &str, token: OwnerToken, fence: u64) -> impl Display {
    written(move |f| {
        owner(mode, process, token).fmt(f)?;
        f.write_str(":")?;
        fence.fmt(f)
    })
}

/// Returns `<pid>@<host>:<id of the inbox>`, which is part of the text of every owner in this process. Operators may
/// read `<pid>@<host>`.
///
/// No code reads `<pid>@<host>`: any text without a colon may stand in its place.
pub(crate) fn process(inbox_id: &str) -> String {
    format!("{}@{}:{inbox_id}", std::process::id(), host::name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_locks_of_a_prefix_share_stays_under_it_and_has_no_lock_s_name() {
        let key = LockKey::with_prefix("lock:", "user:42").expect("valid");
        assert_eq!(Domain::of(&key).fence().to_string(), "lock:~1:fence");
        assert_eq!(Domain::of(&key).queues().to_string(), "lock:~1:queues");
        assert_eq!(inbox("lock:", "ab"), "lock:~1:inbox:ab");
        assert_eq!(inbox("", "ab"), "~1:inbox:ab");
        assert_eq!(inbox("app", "ab"), "app:~1:inbox:ab", "`app~1:inbox:ab` could be a lock");
    }

    #[test]
    fn an_owner_begins_with_the_format_the_mode_and_the_process() {
        let process = process("0123456789abcdef");
        let owner = owner(Mode::Exclusive, &process, OwnerToken::from(255)).to_string();
        assert!(owner.starts_with(&format!("1x:{}@", std::process::id())), "{owner}");
        assert!(owner.ends_with(":0123456789abcdef:000000000000000000000000000000ff"), "{owner}");
    }
}
