//! What can be chosen for a lock, with its defaults and bounds.

use std::time::Duration;

use crate::{
    LockError, LockErrorKind,
    backend::{Capabilities, Wait},
    clock::Instant,
    hold::Terms,
};

/// The shortest and the longest lease.
pub(crate) const MIN_TTL: Duration = Duration::from_millis(100);
pub(crate) const MAX_TTL: Duration = Duration::from_hours(24);

/// How long to wait for a lock that somebody else holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// At most this long; zero means one attempt.
    AtMost(Duration),
    /// Without an end.
    Forever,
}

impl WaitFor {
    /// The moment at which a wait that starts now ends.
    pub(crate) fn starting_now(self) -> Wait {
        match self {
            Self::AtMost(Duration::ZERO) => Wait::No,
            Self::AtMost(length) => Wait::Until(Instant::now() + length),
            Self::Forever => Wait::Forever,
        }
    }
}

/// The options of one lock; a manager has the defaults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockOptions {
    pub(crate) ttl: Duration,
    pub(crate) wait: WaitFor,
    pub(crate) auto_renew: bool,
    pub(crate) max_hold: Duration,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30),
            wait: WaitFor::AtMost(Duration::from_secs(10)),
            auto_renew: true,
            max_hold: Duration::from_hours(1),
        }
    }
}

impl LockOptions {
    pub(crate) fn check(&self, store: Capabilities) -> Result<(), LockError> {
        let problem = if self.ttl < MIN_TTL {
            format!(
                "ttl {:?} is too short: at least {MIN_TTL:?}, so that a renewal can arrive in time",
                self.ttl
            )
        } else if self.ttl > MAX_TTL {
            format!("ttl {:?} is too long: at most 24h; a longer hold is renewed, see `auto_renew`", self.ttl)
        } else if let Some(timeout) = store.session_timeout.filter(|timeout| self.ttl < *timeout) {
            format!(
                "ttl {:?} is shorter than {timeout:?}, the session time-out of the store, which bounds the hold after \
                 a crash; make the one longer or the other shorter",
                self.ttl
            )
        } else if self.max_hold.is_zero() {
            "max_hold is zero: the lock would be lost at once; use `Duration::MAX` for no limit".into()
        } else {
            return Ok(());
        };
        Err(LockError::new(LockErrorKind::InvalidOptions, problem))
    }

    pub(crate) fn terms(&self) -> Terms {
        Terms { ttl: self.ttl, auto_renew: self.auto_renew }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_named() {
        let (defaults, store) = (LockOptions::default(), Capabilities::new());
        assert!(defaults.check(store).is_ok());
        for (options, word) in [
            (LockOptions { ttl: Duration::from_millis(99), ..defaults }, "too short"),
            (LockOptions { ttl: Duration::ZERO, ..defaults }, "too short"),
            (LockOptions { ttl: MAX_TTL + Duration::from_nanos(1), ..defaults }, "too long"),
            (LockOptions { ttl: Duration::MAX, ..defaults }, "too long"),
            (LockOptions { max_hold: Duration::ZERO, ..defaults }, "max_hold"),
        ] {
            let error = options.check(store).expect_err(word);
            assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(LockOptions { ttl: MIN_TTL, max_hold: Duration::MAX, ..defaults }.check(store).is_ok());
    }
}
