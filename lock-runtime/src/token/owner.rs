//! The owner token, which is secret.

use std::{cell::RefCell, fmt, time::Duration};

#[cfg(test)]
use crate::simulated;
use crate::{process::Process, time::clock::Instant};

/// A secret, generated for each acquisition, by which the store recognises the owner of a lock.
///
/// Anyone who knows it can release the lock, so it never appears in error messages, logs or `Debug` output.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerToken(u128);

impl OwnerToken {
    /// Creates a token from 128 random bits supplied by the operating system.
    ///
    /// # Panics
    /// Panics if the operating system provides no randomness: without it, other clients could guess the token and
    /// release the lock.
    #[must_use]
    pub fn random() -> Self {
        FRESH.with_borrow_mut(|fresh| fresh.take(Process::this(), Instant::now()))
    }

    /// Returns the token of this number, for a store that makes the tokens of its owners itself.
    #[cfg(feature = "postgres")]
    pub(crate) const fn of(number: u128) -> Self {
        Self(number)
    }

    /// Returns the token as a number, for a store to record.
    #[must_use]
    pub const fn expose(self) -> u128 {
        self.0
    }
}

thread_local! {
    // Needs no destructor, so it exists as long as its thread.
    static FRESH: RefCell<Fresh> = const { RefCell::new(Fresh::NONE) };
}

/// How long generated tokens are kept for use.
///
/// If a machine or process is restored twice from one snapshot, both copies have the same tokens. If the copies were
/// idle, these tokens are too old to be used. If they were busy, their locks exist twice as well.
const KEPT: Duration = Duration::from_millis(10);

/// Tokens that are not in use yet: one system call generates 64. A system call for each would be 6% of the client's CPU
/// time for an uncontended lock under load.
#[derive(Clone)]
struct Fresh {
    /// The process that generated them, and when. A forked process has a copy, which it must not use.
    made: Option<(Process, Instant)>,
    tokens: [[u8; 16]; 64],
    left: usize,
}

impl Fresh {
    const NONE: Self = Self { made: None, tokens: [[0; 16]; 64], left: 0 };

    fn take(&mut self, process: Process, now: Instant) -> OwnerToken {
        // The clock of a machine that continues the process may be behind.
        let is_usable = |(by, at)| by == process && at <= now && now < at + KEPT;
        if self.left == 0 || !self.made.is_some_and(is_usable) {
            fill(self.tokens.as_flattened_mut());
            (self.made, self.left) = (Some((process, now)), self.tokens.len());
        }
        self.left -= 1;
        OwnerToken(u128::from_ne_bytes(self.tokens[self.left]))
    }
}

fn fill(bytes: &mut [u8]) {
    #[cfg(test)]
    if simulated::fill(bytes) {
        return;
    }
    getrandom::fill(bytes).expect("the operating system provides randomness");
}

impl From<u128> for OwnerToken {
    /// Creates a token from a number, for a store that needs no secret because no other process can reach it.
    fn from(value: u128) -> Self {
        Self(value)
    }
}

impl fmt::Debug for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_tokens_are_unlike_each_other_and_those_of_a_copy_of_the_process() {
        let now = Instant::now();
        let [ours, childs] = [1, 2].map(Process::with_id);
        let mut parent = Fresh::NONE;
        let mut taken = std::collections::HashSet::from([parent.take(ours, now)]);
        let [mut child, mut restored, mut moved, mut twin] = [(); 4].map(|()| parent.clone());
        assert_eq!(
            parent.clone().take(ours, now),
            twin.take(ours, now + KEPT / 2),
            "some are left, which a copy has as well"
        );
        for _ in 0..200 {
            assert!(taken.insert(parent.take(ours, now)));
            assert!(taken.insert(child.take(childs, now)));
            assert!(taken.insert(restored.take(ours, now + KEPT)));
            assert!(taken.insert(moved.take(ours, Instant::from_nanos(1))));
        }
    }

    #[test]
    fn owner_token_is_never_shown() {
        let owner = OwnerToken::from(0x1234_5678_9abc);
        let shown = format!("{owner:?}");
        assert!(!shown.contains(&owner.expose().to_string()) && !shown.contains("9abc"), "{shown}");
    }
}
