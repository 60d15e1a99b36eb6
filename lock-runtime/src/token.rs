//! The fencing token, which is public, and the owner token, which is secret.

use std::{cell::RefCell, fmt, time::Duration};

#[cfg(test)]
use crate::simulated;
use crate::{process::Process, time::clock::Instant};

/// The number of low bits of a fencing token that count the hand-overs inside a process.
const SEQUENCE_BITS: u32 = 11;
const SEQUENCE_MAX: u64 = (1 << SEQUENCE_BITS) - 1;

/// A number that is larger for each new holder of a lock, so that a resource can reject writes from earlier holders.
///
/// Each holder's token is strictly larger than the tokens of all earlier holders of the lock. (If the [store's
/// conditions](crate::docs::safety#the-promise) are violated and two clients hold the lock at the same time, the order
/// of their two tokens is not guaranteed.)
///
/// Send the token with each write to the resource that the lock protects (a database, say), and have that resource
/// reject any token smaller than the largest it has seen, in the same atomic step as the write. Tokens of different
/// locks or of different stores cannot be compared.
///
/// The value fits into an `i64`. In JSON, send it as a string, because it may exceed 2^53.
///
/// The idea comes from M. Kleppmann, "How to do distributed locking", 2016. On stores that derive tokens from a clock,
/// such as Redis, the high bits are normally the store's time in microseconds when it granted the lock. The low eleven
/// bits count how often the lock has since been passed from one holder to the next inside the process, without a new
/// grant from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The largest number of microseconds that fits into a token: a moment in the year 2112.
    pub(crate) const LAST_MICROS: u64 = (1 << 52) - 1;

    /// Creates a token for a lease.
    ///
    /// `micros` is any number that rises with each grant of the lock, such as the store's time in microseconds. Numbers
    /// larger than 2^52 − 1 are clamped to that value. The 2,047 values above the token are reserved for the next
    /// holders, to which the lease is handed over inside the process.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        let limit = Self::LAST_MICROS;
        Self((if micros < limit { micros } else { limit }) << SEQUENCE_BITS)
    }

    /// Creates a token for a lock that is not handed over inside the process, such as a session lock
    /// ([`Held::Session`](crate::backend::Held::Session)), from the number that the store itself assigned to the grant.
    /// Numbers larger than `i64::MAX` are clamped to that value.
    ///
    /// Do not use this function for a lease that [may be handed
    /// over](crate::backend::Lease::may_hand_over) inside the process: such a token leaves no larger values for the next
    /// holders. An acquisition that is granted a lease with such a token fails with
    /// [`Unsupported`](crate::LockErrorKind::Unsupported). The error cannot be relied on, though: a number that happens
    /// to be a multiple of 2,048 looks like a token made by [`from_micros`](Self::from_micros) and is accepted.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        let limit = i64::MAX.cast_unsigned();
        Self(if number < limit { number } else { limit })
    }

    /// Returns the token as a number, at most `i64::MAX`.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the number that was passed to [`from_micros`](Self::from_micros), without the count of hand-overs.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0 >> SEQUENCE_BITS
    }

    /// Returns whether this looks like a token made by [`from_micros`](Self::from_micros). Every multiple of 2,048
    /// does, however it was made.
    pub(crate) const fn begins_sequence(self) -> bool {
        self.0 & SEQUENCE_MAX == 0
    }

    /// Returns the token of the next holder under the same grant, or `None` if the numbers of the grant are used up.
    pub(crate) fn successor(self) -> Option<Self> {
        (self.0 & SEQUENCE_MAX < SEQUENCE_MAX).then(|| Self(self.0 + 1))
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        // Never truncated: the constructors keep the value below 2^63.
        token.0.cast_signed()
    }
}

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
    fn successors_rise_and_stay_below_the_next_grant() {
        let first = FencingToken::from_micros(1_700_000_000_000_000);
        let mut last = first;
        let mut count = 0;
        while let Some(next) = last.successor() {
            assert!(next > last);
            assert_eq!(next.micros(), first.micros());
            (last, count) = (next, count + 1);
        }
        assert_eq!(count, SEQUENCE_MAX);
        assert!(last < FencingToken::from_micros(1_700_000_000_000_001));
    }

    #[test]
    fn fits_a_signed_integer_beyond_the_year_2100() {
        let micros_in_2100 = 4_102_444_800_000_000;
        let token = FencingToken::from_micros(micros_in_2100);
        assert_eq!(token.micros(), micros_in_2100);
        assert!(i64::from(token) > 0);
        assert!(i64::from(FencingToken::from_micros(u64::MAX)) > 0);
    }

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
