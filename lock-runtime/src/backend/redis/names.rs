//! The names that one lock has on the server.
//!
//! The holder's key is exactly the prefix and the lock's name, so that any client that follows the published recipe
//! (`SET key token NX PX`, compare-and-delete) excludes us and is excluded by us. What is kept beside it stays under
//! the prefix, for an ACL, and in the same hash slot; no lock can have such a name, because `:~` is refused.

use crate::{
    LockKey,
    key::{HashTag, hash_tag},
};

/// The format of what is kept beside a holder; a new one lets old and new processes tell each other apart.
pub(super) const FORMAT: &str = "1";

/// The keys of one lock, in the order in which the scripts take them.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) holder: LockKey,
    pub(super) queue: String,
    pub(super) places: String,
    pub(super) fence: String,
}

impl Names {
    pub(super) fn of(key: &LockKey) -> Self {
        let (stored, prefix) = (key.stored(), key.prefix());
        // A name with a hash tag of its own keeps it; else the whole name becomes the tag.
        let beside = match hash_tag(stored) {
            HashTag::Tag => format!("{stored}:~{FORMAT}:"),
            HashTag::None | HashTag::Malformed => format!("{prefix}{{{stored}}}:~{FORMAT}:"),
        };
        Self {
            holder: key.clone(),
            queue: format!("{beside}queue"),
            places: format!("{beside}places"),
            fence: format!("{prefix}~{FORMAT}:fence"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_has_the_plain_name_and_the_rest_stays_under_the_prefix() {
        let names = Names::of(&LockKey::with_prefix("lock:", "user:42").expect("valid"));
        assert_eq!(names.holder.stored(), "lock:user:42");
        assert_eq!(names.queue, "lock:{lock:user:42}:~1:queue");
        assert_eq!(names.places, "lock:{lock:user:42}:~1:places");
        assert_eq!(names.fence, "lock:~1:fence");
    }

    #[test]
    fn a_hash_tag_of_its_own_is_kept() {
        let names = Names::of(&LockKey::with_prefix("lock:", "{acme}:orders").expect("valid"));
        assert_eq!(names.queue, "lock:{acme}:orders:~1:queue");
    }
}
