//! The fencing token and the owner token: one is public, the other a secret.

use std::fmt;

/// Number of low bits of a fencing token that count the hand-overs inside a process.
const SEQUENCE_BITS: u32 = 11;
const SEQUENCE_MAX: u64 = (1 << SEQUENCE_BITS) - 1;

/// A number that grows with every grant of a lock, so that a resource can refuse a writer that came too late.
///
/// The token of a grant is strictly larger than that of every grant that had ended before this one was requested.
/// Hand it to the resource with each write, and let the resource refuse a token smaller than the largest it has
/// seen, in the same atomic step as the write. Tokens of different locks, or of different stores, cannot be compared.
/// The value fits an `i64`; in JSON send it as a string, because it exceeds 2^53.
///
/// Source: M. Kleppmann, "How to do distributed locking", 2016. Layout on stores that mint from a clock:
/// microseconds of the store's clock in the high bits, the sequence of hand-overs inside the process in the low
/// eleven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The largest number of microseconds that a token can hold, a moment in the year 2112.
    pub(crate) const LAST_MICROS: u64 = (1 << 52) - 1;

    /// Creates the token of a lease.
    ///
    /// `micros` is any number that rises with each grant of the lock, such as the microseconds of the store's clock.
    /// Numbers above 2^52 − 1 are reduced to it. The token leaves room for those of the turns that follow when the
    /// lease is handed over inside the process.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        let limit = Self::LAST_MICROS;
        Self((if micros < limit { micros } else { limit }) << SEQUENCE_BITS)
    }

    /// Creates the token of a session lock ([`Held::Session`](crate::backend::Held::Session)) from the store's own
    /// number of the grant. Numbers above `i64::MAX` are reduced to it.
    ///
    /// No numbers lie between it and the next one, so it does not suit a lease, which is handed over inside the
    /// process. A lease with such a token is refused, unless the number looks like one of
    /// [`from_micros`](Self::from_micros).
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

    /// Returns the number that the store minted, without the count of hand-overs.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0 >> SEQUENCE_BITS
    }

    /// Returns whether it looks like the first token of a grant by [`from_micros`](Self::from_micros). One number in
    /// 2,048 does, however it was made.
    pub(crate) const fn begins_sequence(self) -> bool {
        self.0 & SEQUENCE_MAX == 0
    }

    /// Returns the token of the next holder of the same grant; `None` once the grant's numbers are used up.
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

/// The secret name of one attempt to hold a lock. Knowing it is enough to release the lock, so it is never shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerToken(u128);

impl OwnerToken {
    /// Creates a token of 128 fresh bits from the operating system.
    ///
    /// # Panics
    /// If the operating system provides no randomness, because a guessable owner token would let other clients release
    /// the lock.
    #[must_use]
    pub fn random() -> Self {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).expect("the operating system provides randomness");
        Self(u128::from_ne_bytes(bits))
    }

    /// Returns the token as a number, for a store to record.
    #[must_use]
    pub const fn expose(self) -> u128 {
        self.0
    }
}

impl From<u128> for OwnerToken {
    /// For a store that needs no secret, because no other process can reach it.
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
    fn owner_tokens_are_unlike_each_other() {
        let tokens: std::collections::HashSet<_> = (0..1000).map(|_| OwnerToken::random()).collect();
        assert_eq!(tokens.len(), 1000);
    }

    #[test]
    fn owner_token_is_never_shown() {
        let owner = OwnerToken::from(0x1234_5678_9abc);
        let shown = format!("{owner:?}");
        assert!(!shown.contains(&owner.expose().to_string()) && !shown.contains("9abc"), "{shown}");
    }
}
