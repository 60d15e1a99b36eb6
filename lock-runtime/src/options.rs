//! The options of a lock, with their defaults and bounds.

use std::time::Duration;

use crate::{
    Label, LockError, LockErrorKind,
    backend::{Capabilities, Wait},
    time::clock::Instant,
};

/// The shortest and the longest lease.
pub(crate) const MIN_TTL: Duration = Duration::from_millis(100);
pub(crate) const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// The shortest and the longest period of [`once_per`](crate::Lock::once_per).
pub(crate) const MIN_PERIOD: Duration = Duration::from_secs(1);
pub(crate) const MAX_PERIOD: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// How long to wait for a lock that another caller holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// At most this long. Zero means a single attempt.
    AtMost(Duration),
    /// Without a limit.
    Forever,
}

impl WaitFor {
    /// Returns the end of a wait that starts now.
    pub(crate) fn starting_now(self) -> Wait {
        match self {
            Self::AtMost(Duration::ZERO) => Wait::No,
            Self::AtMost(length) => Wait::Until(Instant::now() + length),
            Self::Forever => Wait::Forever,
        }
    }
}

/// The options of one lock, whose defaults come from its manager.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockOptions {
    pub(crate) ttl: Duration,
    pub(crate) wait: WaitFor,
    pub(crate) auto_renew: bool,
    pub(crate) max_hold: Duration,
    /// Zero if the lock may be released at any time.
    pub(crate) hold_at_least: Duration,
    pub(crate) reentrant: bool,
    /// The pause before a retry that a response suggests to a client if the lock is held.
    pub(crate) retry_after: Duration,
    /// What the holder says of itself to operators.
    pub(crate) label: Label,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30),
            wait: WaitFor::AtMost(Duration::from_secs(10)),
            auto_renew: true,
            max_hold: Duration::from_secs(60 * 60),
            hold_at_least: Duration::ZERO,
            reentrant: false,
            retry_after: Duration::from_secs(1),
            label: Label::NONE,
        }
    }
}

impl LockOptions {
    pub(crate) fn check(&self, store: Capabilities) -> Result<(), LockError> {
        self.label.check()?;
        let problem = if self.ttl < MIN_TTL {
            format!(
                "ttl {:?} is too short: at least {MIN_TTL:?}, so that a renewal can arrive in time",
                self.ttl
            )
        } else if self.ttl > MAX_TTL {
            format!("ttl {:?} is too long: at most 24h; a longer hold is renewed, see `auto_renew`", self.ttl)
        } else if let Some(timeout) = store.session_timeout().filter(|timeout| self.ttl < *timeout) {
            format!(
                "ttl {:?} is shorter than {timeout:?}, the session timeout of the store, which bounds the hold after \
                 a crash; make ttl longer or the session timeout shorter",
                self.ttl
            )
        } else if self.max_hold.is_zero() {
            "max_hold is zero: the lock would be lost at once; use `Duration::MAX` for no limit".into()
        } else if self.hold_at_least > self.max_hold {
            format!("hold_at_least {:?} is longer than max_hold {:?}", self.hold_at_least, self.max_hold)
        } else if !self.auto_renew && self.hold_at_least > self.ttl {
            format!(
                "hold_at_least {:?} is longer than ttl {:?}, and without auto_renew the lock ends after ttl",
                self.hold_at_least, self.ttl
            )
        } else {
            return Ok(());
        };
        Err(LockError::new(LockErrorKind::InvalidOptions, problem))
    }
}

/// Checks a period of [`once_per`](crate::Lock::once_per).
pub(crate) fn check_period(period: Duration, store: Capabilities) -> Result<(), LockError> {
    let lasts = longest_mark(period.min(MAX_PERIOD));
    let problem = if !(MIN_PERIOD..=MAX_PERIOD).contains(&period) {
        format!("once_per {period:?} is not a period: from 1s to 31 days")
    } else if let Some(longest) = store.longest_ttl().filter(|longest| *longest < lasts) {
        format!(
            "once_per {period:?} needs leases of up to {lasts:?}, six fifths of the period, and the longest of this store \
             is {longest:?}, its `max_ttl`; set a longer `max_ttl`, or declare the nodes `durable` if they are"
        )
    } else {
        return Ok(());
    };
    Err(LockError::new(LockErrorKind::InvalidOptions, problem))
}

/// Returns the longest time for which a period is marked: from a start one tenth of the period before its beginning until
/// one tenth after its end.
pub(crate) fn longest_mark(period: Duration) -> Duration {
    period + 2 * (period / 10)
}

/// The methods that set options, used for one lock and for several.
macro_rules! option_methods {
    () => {
        /// Sets how long a [lease](crate::docs::glossary#locks) lasts if it is not renewed: between 100 ms and 24 h.
        /// The default is the manager's setting (30 s by default).
        ///
        /// If the holder crashes, its lock becomes free within this time, unless it is a session lock: see [what frees a
        /// lock after a crash](crate::docs::stores#how-their-locks-behave). With a shorter `ttl`, the lock becomes free
        /// sooner after a crash, but the holder loses the lock if the network or the store stalls for longer than the
        /// `ttl`. 30 s suits most programs.
        pub fn ttl(mut self, ttl: Duration) -> Self {
            self.options.ttl = ttl;
            self
        }

        /// Sets how long [`acquire`](Self::acquire) waits before it fails. For a [`MultiLock`](crate::MultiLock), the
        /// wait covers all the locks together. Zero means a single attempt. The default is the manager's setting
        /// (10 s by default).
        pub fn wait(mut self, wait: Duration) -> Self {
            self.options.wait = WaitFor::AtMost(wait);
            self
        }

        /// Makes [`acquire`](Self::acquire) wait without a time limit.
        pub fn wait_forever(mut self) -> Self {
            self.options.wait = WaitFor::Forever;
            self
        }

        /// Sets whether a lease is renewed while its lock is held. Without renewal, the lock is lost after `ttl`. The
        /// default is the manager's setting (on by default).
        pub fn auto_renew(mut self, auto_renew: bool) -> Self {
            self.options.auto_renew = auto_renew;
            self
        }

        /// Sets the maximum time that a lock is held, however often its lease is renewed. After this time, the lock
        /// counts as lost. `Duration::MAX` means no limit. The default is the manager's setting (1 h by
        /// default).
        pub fn max_hold(mut self, max_hold: Duration) -> Self {
            self.options.max_hold = max_hold;
            self
        }

        /// Sets the minimum time that a lock is held, counted from its acquisition. For a
        /// [`MultiLock`](crate::MultiLock), the time counts from the acquisition of the last of the locks. By
        /// default, there is no minimum.
        ///
        /// If you release or drop the guard earlier, neither `release` nor the drop waits for the rest of this time.
        /// [`run`](crate::LockGuard::run) and `#[distributed_lock]` functions do not wait for it either. The lock
        /// stays held in the background and is renewed as before. Until the minimum time has elapsed, no other caller
        /// can acquire the lock, in this process or any other, unless the lock is lost. Use this for work that should
        /// be done only once, such as a scheduled job that several processes start: a process that starts the job a
        /// moment later finds the lock held and does not repeat the work.
        ///
        /// If the process exits earlier, the lock stays held only until its lease expires. To keep the lock held for
        /// the minimum time even then, choose a `ttl` that is at least as long. (A session lock stays held only until the
        /// store ends the session: see [what frees a lock after a
        /// crash](crate::docs::stores#how-their-locks-behave).) [`shutdown`](crate::LockManager::shutdown) does not wait
        /// for the minimum time to elapse.
        pub fn hold_at_least(mut self, hold_at_least: Duration) -> Self {
            self.options.hold_at_least = hold_at_least;
            self
        }

        /// Sets a label, by which operators recognise for what the lock is held, for example `nightly report`. A label has
        /// at most 63 bytes and no control characters; otherwise, the acquisition fails with
        /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions). By default, a lock has no label, except those of
        /// `#[distributed_lock]` (the name of the function) and of lock-tower's layer (the route).
        ///
        /// [`inspect`](crate::LockManager::inspect) shows the label beside the process and the host. The label is stored
        /// with the lock, and anyone who may read the store can read it.
        pub fn label(mut self, label: impl AsRef<str>) -> Self {
            self.options.label = crate::Label::new(label.as_ref());
            self
        }

        /// Sets whether code that is already running under a lock may acquire that lock again; off by default. For a
        /// [`MultiLock`](crate::MultiLock), this applies to each of the locks.
        ///
        /// If this is off, such an acquisition fails at once with
        /// [`WouldDeadlock`](crate::LockErrorKind::WouldDeadlock), because it would wait for itself. Code runs under a
        /// lock if it is the body of [`run`](crate::LockGuard::run) or of a `#[distributed_lock]` function, if it
        /// handles a request behind lock-tower's layer, or if such code calls or awaits it. Tasks that it spawns do not
        /// run under the lock. All this also applies if the lock was acquired through another
        /// [manager](crate::LockManager) of the same store.
        ///
        /// The inner guard shares the lock and the fencing token with the outer guard. Releasing the inner guard does
        /// not release the lock, and when the outer guard loses the lock, so does the inner one. For a lock that is
        /// acquired again, the only option of the inner acquisition that has an effect, apart from `reentrant`
        /// itself, is `hold_at_least`, which can delay the release of the lock. This minimum time, which counts from
        /// the inner acquisition, must end before the outer guard reaches its `max_hold` (or the end of its `ttl`, if
        /// the lease is not renewed). Otherwise, the inner acquisition fails with
        /// [`InvalidOptions`](crate::LockErrorKind::InvalidOptions).
        ///
        /// This is an example with a [`Lock`](crate::Lock); a [`MultiLock`](crate::MultiLock) works in the same way:
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")]
        /// # async fn main() -> Result<(), lock_runtime::LockError> {
        /// # let locks = lock_runtime::LockManager::connect("memory:").await?;
        /// use lock_runtime::LockErrorKind;
        ///
        /// let lock = locks.lock("user:42");
        /// let section = async {
        ///     let refused = lock.acquire().await.unwrap_err();
        ///     assert_eq!(refused.kind(), LockErrorKind::WouldDeadlock);
        ///     let again = lock.clone().reentrant(true).acquire().await?;
        ///     again.release().await
        /// };
        /// lock.acquire().await?.run(section).await??;
        /// # Ok(())
        /// # }
        /// ```
        pub fn reentrant(mut self, reentrant: bool) -> Self {
            self.options.reentrant = reentrant;
            self
        }
    };
}
pub(crate) use option_methods;

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
            (LockOptions { hold_at_least: Duration::from_hours(2), ..defaults }, "longer than max_hold"),
            (
                LockOptions { hold_at_least: Duration::from_secs(31), auto_renew: false, ..defaults },
                "longer than ttl",
            ),
        ] {
            let error = options.check(store).expect_err(word);
            assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(LockOptions { hold_at_least: Duration::from_secs(31), ..defaults }.check(store).is_ok());
        assert!(LockOptions { ttl: MIN_TTL, max_hold: Duration::MAX, ..defaults }.check(store).is_ok());
    }

    #[test]
    fn a_period_has_bounds_and_its_mark_is_no_longer_than_the_leases_of_the_store() {
        let store = Capabilities::new();
        for period in [MIN_PERIOD, MAX_PERIOD] {
            check_period(period, store).expect("within the bounds");
        }
        let least = Duration::from_nanos(1);
        for period in [Duration::ZERO, MIN_PERIOD.saturating_sub(least), MAX_PERIOD + least, Duration::MAX] {
            let error = check_period(period, store).expect_err("out of bounds");
            assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
            assert!(error.to_string().contains("from 1s to 31 days"), "{error}");
        }
        let store = store.with_longest_ttl(Duration::from_secs(60));
        check_period(Duration::from_secs(50), store).expect("short enough");
        let error = check_period(Duration::from_secs(51), store).expect_err("longer");
        assert_eq!(error.kind(), LockErrorKind::InvalidOptions);
        for word in ["once_per 51s", "61.2s", "60s", "`max_ttl`", "`durable`"] {
            assert!(error.to_string().contains(word), "{word}: {error}");
        }
    }
}
