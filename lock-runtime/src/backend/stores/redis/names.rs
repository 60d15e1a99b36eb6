//! The names that a lock has on the server.
//!
//! The holder's key is exactly the prefix and the lock's name, so that any client that follows the published recipe
//! (`SET key token NX PX`, compare-and-delete) excludes us and is excluded by us. The keys of the lock's queue stay
//! under the prefix, for an ACL, and in the same hash slot. No lock can have the name of such a key, because `:~` is
//! refused in lock names.

use std::fmt::{self, Display, Write};

use crate::{
    Label, LockKey, OwnerToken,
    backend::{
        Mode,
        common::signature,
        kits::redis::{
            format::{FORMAT, letter, token, written},
            slot::Slot,
        },
    },
    key::{HashTag, hash_tag},
};

/// Which locks may share keys and calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Those under one prefix.
    ByPrefix,
    /// Those under one prefix whose names are in one hash slot.
    BySlot,
}

/// A domain: locks that may share a call, and that share two keys, the counter of fences and a key that exists while
/// one of the locks may have a queue.
///
/// The user's permissions are checked for each domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Domain<'a> {
    prefix: &'a str,
    /// The slot of the locks; none if all locks under the prefix are one domain.
    slot: Option<Slot>,
}

impl<'a> Domain<'a> {
    /// Returns the domain of a lock.
    pub(crate) fn of(key: &'a LockKey, layout: Layout) -> Self {
        let prefix = key.prefix();
        let slot = match layout {
            Layout::ByPrefix => None,
            // The tag of the prefix puts all that is under the prefix into one slot.
            Layout::BySlot if hash_tag(prefix) == HashTag::Tag => None,
            Layout::BySlot => Some(Slot::of(key.stored())),
        };
        Self { prefix, slot }
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
        written(move |f| match self.slot {
            None => write!(f, "{}~{FORMAT}:{what}", Root(self.prefix)),
            Some(slot) => write!(f, "{}~{FORMAT}:{{{}}}:{what}", Root(self.prefix), slot.tag()),
        })
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

/// The part that the texts of all owners in this process have, and the layout of the store's keys.
#[derive(Debug)]
pub(crate) struct Process {
    /// The [signature](signature::of_process) of this process, which operators read.
    signature: String,
    inbox_id: String,
    layout: Layout,
}

impl Process {
    pub(crate) fn new(inbox_id: &str, layout: Layout) -> Self {
        Self { signature: signature::of_process(), inbox_id: inbox_id.to_owned(), layout }
    }

    /// Returns the domain of a lock.
    pub(crate) fn domain<'a>(&self, key: &'a LockKey) -> Domain<'a> {
        Domain::of(key, self.layout)
    }

    /// Returns the slot of a lock, if locks in different slots share no call.
    pub(crate) fn slot(&self, key: &LockKey) -> Option<Slot> {
        self.domain(key).slot
    }

    /// Returns the text of an owner, `1x:<signature>:<inbox>:<token>`. The signature has the label, and no colon.
    pub(crate) fn owner(&self, mode: Mode, label: &Label, owner: OwnerToken) -> impl Display {
        written(move |f| {
            self.owners(mode).fmt(f)?;
            self.rest(label, owner).fmt(f)
        })
    }

    /// Returns the common beginning of all owners of this process in one mode.
    pub(crate) fn owners(&self, mode: Mode) -> impl Display {
        written(move |f| {
            // `write_str` is used because `write!` is slow.
            f.write_str(FORMAT)?;
            f.write_char(letter(mode))?;
            f.write_char(':')?;
            f.write_str(&self.signature)
        })
    }

    /// Returns what follows [`owners`](Self::owners) in the text of an owner with this label.
    pub(crate) fn rest(&self, label: &Label, owner: OwnerToken) -> impl Display {
        written(move |f| {
            self.labelled(label).fmt(f)?;
            token(owner).fmt(f)
        })
    }

    /// Returns what all owners with this label have between [`owners`](Self::owners) and their tokens.
    pub(crate) fn labelled(&self, label: &Label) -> impl Display {
        written(move |f| {
            signature::write_label(f, label)?;
            [":", &self.inbox_id, ":"].into_iter().try_for_each(|part| f.write_str(part))
        })
    }
}

/// Returns the end of the holder's value while a grant lasts that is not revoked, `:<token>:<fence>`. No other grant has
/// this end, because the owner token is random.
pub(crate) fn end_of_grant(owner: OwnerToken, fence: u64) -> impl Display {
    written(move |f| {
        f.write_char(':')?;
        token(owner).fmt(f)?;
        f.write_char(':')?;
        fence.fmt(f)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::backend::kits::redis::format::beside;

    #[test]
    fn what_the_locks_of_a_prefix_share_stays_under_it_and_has_no_lock_s_name() {
        let key = LockKey::with_prefix("lock:", "user:42").expect("valid");
        let domain = Domain::of(&key, Layout::ByPrefix);
        assert_eq!(domain.fence().to_string(), "lock:~1:fence");
        assert_eq!(domain.queues().to_string(), "lock:~1:queues");
        assert_eq!(inbox("lock:", "ab"), "lock:~1:inbox:ab");
        assert_eq!(inbox("", "ab"), "~1:inbox:ab");
        assert_eq!(inbox("app", "ab"), "app:~1:inbox:ab", "`app~1:inbox:ab` could be a lock");
    }

    proptest! {
        /// A server of a cluster runs a script only if all its keys are in one slot.
        #[test]
        fn all_keys_of_a_lock_are_in_its_slot(
            prefix in "[a-z]{0,3}:?|\\{[a-z]{1,3}\\}:|[a-z]:\\{[a-z~]{1,3}\\}",
            name in "[a-z0-9:ä]{1,12}|[a-z]{0,4}\\{[a-z0-9:]{1,6}\\}[a-z]{0,4}",
        ) {
            prop_assume!(LockKey::with_prefix(&prefix, &name).is_ok());
            let key = LockKey::with_prefix(&prefix, &name).expect("valid");
            let slot = Slot::of(key.stored());
            let domain = Domain::of(&key, Layout::BySlot);
            for name in [domain.fence().to_string(), domain.queues().to_string()] {
                prop_assert_eq!(Slot::of(&name), slot, "{} of {}", name, key.stored());
                prop_assert!(name.starts_with(&prefix), "{}", name);
            }
            for what in ["queue", "places", "open"] {
                let name = beside(&key, what).to_string();
                prop_assert_eq!(Slot::of(&name), slot, "{} of {}", name, key.stored());
            }
        }
    }

    #[test]
    fn an_owner_begins_with_the_format_the_mode_and_the_process() {
        let process = Process::new("0123456789abcdef", Layout::ByPrefix);
        let (label, token) = (Label::new("nightly: a b"), OwnerToken::from(255));
        let owner = process.owner(Mode::Exclusive, &label, token).to_string();
        assert!(owner.starts_with(&format!("1x:{}:", signature::of(label))), "{owner}");
        assert!(owner.ends_with(":0123456789abcdef:000000000000000000000000000000ff"), "{owner}");
        let [owners, labelled] =
            [process.owners(Mode::Exclusive).to_string(), process.labelled(&label).to_string()];
        assert_eq!(owners + &labelled + "000000000000000000000000000000ff", owner, "as in a batch");
        assert!(format!("{owner}:7").ends_with(&end_of_grant(token, 7).to_string()));
        let unlabelled = process.owner(Mode::Exclusive, &Label::NONE, token).to_string();
        assert_eq!(unlabelled.matches([':', ',']).count(), 4, "{unlabelled}");
    }
}
