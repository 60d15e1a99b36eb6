use std::{
    cmp::Ordering,
    hash::{Hash, Hasher},
};

use crate::{LockKey, backend::Mode};

/// The identity of a lock in its store: its stored name and its mode.
///
/// A name in two modes is two locks, even if the two locks exclude each other in the store. [`LockKey`]s are compared
/// without their prefixes; identities are compared by the stored names, which include the prefixes.
#[derive(Clone, Debug)]
pub(crate) struct LockId {
    pub(crate) key: LockKey,
    pub(crate) mode: Mode,
}

impl LockId {
    /// Returns everything by which locks are compared.
    fn compared(&self) -> (&str, Mode) {
        (self.key.stored(), self.mode)
    }
}

impl PartialEq for LockId {
    fn eq(&self, other: &Self) -> bool {
        self.compared() == other.compared()
    }
}

impl Eq for LockId {}

impl PartialOrd for LockId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LockId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.compared().cmp(&other.compared())
    }
}

impl Hash for LockId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.compared().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_compared_by_their_names_in_the_store() {
        let lock = |prefix, name| LockId {
            key: LockKey::with_prefix(prefix, name).expect("valid"),
            mode: Mode::Exclusive,
        };
        assert_eq!(lock("app:", "user:42"), lock("", "app:user:42"));
        assert_ne!(lock("app:", "user:42"), lock("lock:", "user:42"));
        assert!(lock("a:", "z") < lock("b:", "a"), "ordered without the prefix");
    }
}
