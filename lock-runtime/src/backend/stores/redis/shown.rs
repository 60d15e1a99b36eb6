//! What the answers of the scripts state of a holder and of waiters, for operators.

use std::time::{Duration, SystemTime};

use crate::{
    FencingToken, LockHolder, LockKey, LockWaiter,
    backend::{
        LockState, Mode,
        common::signature::{self, Signature},
        kits::redis::format::letter,
    },
};

/// The answer of `PTTL` for a key without an expiry.
const NO_EXPIRY: i64 = -1;

/// Returns the remaining time of a lease by the answer of `PTTL`: [`Duration::MAX`] without an expiry, and `None` without
/// a lease.
pub(super) fn remaining(pttl_ms: i64) -> Option<Duration> {
    match pttl_ms {
        NO_EXPIRY => Some(Duration::MAX),
        _ => u64::try_from(pttl_ms).ok().map(Duration::from_millis),
    }
}

/// A holder, as `shown.lua` writes it: `<mode>:<signature>:<fence>`, with a `!` at the end if the grant was revoked. Any
/// other text is that of a foreign client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown(Box<str>);

impl Shown {
    /// Reads the end of an answer; `None` if the answer states no holder.
    pub(crate) fn of(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.into()))
    }

    /// Returns the holder, with the remaining time of its lease, if known.
    pub(super) fn holder(&self, remaining: Option<Duration>) -> LockHolder {
        self.read(remaining).1
    }

    /// Returns the state of a lock with this holder, without waiters.
    pub(super) fn state(&self, key: LockKey, remaining: Option<Duration>) -> LockState {
        let (is_known_mode, holder) = self.read(remaining);
        let mut state = LockState::held(key, holder);
        // The holder is a client of a later version, in a mode that this version does not know.
        state.mode = state.mode.filter(|_| is_known_mode);
        state
    }

    /// Returns whether the lock is held exclusively, and the holder.
    fn read(&self, remaining: Option<Duration>) -> (bool, LockHolder) {
        let holder = LockHolder::new().with_remaining(remaining);
        let Some((mode, signature, fence, is_revoked)) = self.parts() else {
            return (false, holder.foreign());
        };
        let Signature { client, label } = signature::read(signature);
        let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(fence));
        let holder = holder
            .with_client(client)
            .with_label(label)
            .with_since(since)
            .with_token(FencingToken::from_micros(fence));
        let is_exclusive = mode.chars().eq([letter(Mode::Exclusive)]);
        (is_exclusive, if is_revoked { holder.revoked() } else { holder })
    }

    fn parts(&self) -> Option<(&str, &str, u64, bool)> {
        let (mode, rest) = self.0.split_once(':')?;
        let (signature, fence) = rest.split_once(':')?;
        let (fence, is_revoked) = fence.strip_suffix('!').map_or((fence, false), |fence| (fence, true));
        let fence = fence.parse().ok().filter(|fence| *fence <= FencingToken::LAST_MICROS)?;
        Some((mode, signature, fence, is_revoked))
    }
}

/// Returns the waiter with this signature.
pub(super) fn waiter(signature: &str) -> LockWaiter {
    let Signature { client, label } = signature::read(signature);
    LockWaiter::new().with_client(client).with_label(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_read_and_what_is_none_of_ours_is_foreign() {
        let left = Some(Duration::from_secs(30));
        let read = |text: &str| Shown::of(text).expect("not empty").holder(left);
        let expected = LockHolder::new()
            .with_client("bank:7@host")
            .with_label("a b")
            .with_since(Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)))
            .with_remaining(left)
            .with_token(FencingToken::from_micros(1_700_000_000_000_000));
        assert_eq!(read("x:bank,7@host,a%20b:1700000000000000"), expected);
        assert_eq!(read("x:bank,7@host,a%20b:1700000000000000!"), expected.revoked());
        for other in ["foreign", "x", "x:bank,7@host", "x:a,7@b:-1", "x:a,7@b:99999999999999999999", "x::!"] {
            assert_eq!(read(other), LockHolder::new().with_remaining(left).foreign(), "{other}");
        }
        assert_eq!(Shown::of(""), None);
    }

    #[test]
    fn the_mode_of_a_later_version_is_unknown() {
        let key = LockKey::new("k").expect("valid");
        let mode = |text: &str| Shown::of(text).expect("not empty").state(key.clone(), None).mode;
        assert_eq!(mode("x:a,1@b:7"), Some(Mode::Exclusive));
        assert_eq!(mode("r:a,1@b:7"), None);
        assert_eq!(mode("foreign"), None);
    }

    #[test]
    fn a_lease_without_an_end_lasts_for_the_longest_time() {
        assert_eq!(remaining(1_500), Some(Duration::from_millis(1_500)));
        assert_eq!(remaining(-1), Some(Duration::MAX));
        assert_eq!(remaining(-2), None);
    }
}
