//! The fencing token, which is public.

use std::fmt;

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
}
