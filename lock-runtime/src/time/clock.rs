//! The clock that decides whether a lock is still valid.

use std::{fmt, ops::Add, time::Duration};

use tokio::sync::oneshot;

#[cfg(test)]
use crate::simulated;
use crate::{background, caller};

/// A moment on a clock that, on Linux, keeps running while the machine is suspended.
///
/// On Linux, the clock of [`std::time::Instant`] stops while the machine is suspended. When the machine resumes, a
/// lease would still look valid although the store may have granted the lock to another client. Therefore, this type
/// reads `CLOCK_BOOTTIME` on Linux; on other systems, it uses [`std::time::Instant`]. It never reads the wall clock, so
/// setting the system time does not affect it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// A moment that is never reached. Adding a duration to it returns the same moment.
    pub const FAR_FUTURE: Instant = Instant(u64::MAX);

    /// Returns the current moment.
    #[must_use]
    pub fn now() -> Self {
        Self(nanos_since_start())
    }

    /// Returns the time from `earlier` to `self`, or zero if `self` is not later than `earlier`.
    #[must_use]
    pub fn saturating_duration_since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the time from now until `self`, or zero if `self` has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.saturating_duration_since(Self::now())
    }

    /// Returns whether this moment has been reached.
    #[must_use]
    pub fn has_passed(self) -> bool {
        self <= Self::now()
    }

    pub(crate) fn as_nanos(self) -> u64 {
        self.0
    }

    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the moment `length` before this one, or the start of the clock.
    #[cfg(feature = "redis")]
    pub(crate) fn saturating_sub(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(length)))
    }

    /// Returns the last multiple of `tick` that is not later.
    pub(crate) fn on_a_tick_of(self, tick: Duration) -> Self {
        let tick = nanos(tick).max(1);
        Self(self.0 / tick * tick)
    }
}

/// Returns a length in nanoseconds, at most that of 584 years.
pub(crate) fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(nanos(length)))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Instant({:?} after the clock's start)", Duration::from_nanos(self.0))
    }
}

#[cfg(target_os = "linux")]
fn nanos_since_start() -> u64 {
    #[cfg(test)]
    if let Some(now) = simulated::now() {
        return now;
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

#[cfg(not(target_os = "linux"))]
fn nanos_since_start() -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    nanos(START.get_or_init(std::time::Instant::now).elapsed())
}

/// Sleeps until the moment `until`, on the clock of [`Instant`].
///
/// A tokio timer alone is not enough: on Linux, its clock stops while the machine is suspended, and it fires at once if
/// the runtime's time is paused (`tokio::time::pause`). Therefore, this function reads the clock again after each
/// timer. It waits in real time even if the runtime's time is paused, and on any executor.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn sleep_until(until: Instant) {
    // A tokio timer can run for about two years at most, so a longer wait is split into steps.
    const STEP: Duration = Duration::from_secs(60 * 60);
    loop {
        let now = Instant::now();
        let length = until.saturating_duration_since(now).min(STEP);
        if length.is_zero() {
            return;
        }
        if caller::has_timers() {
            tokio::time::sleep(length).await;
        }
        if Instant::now() < now + length / 2 {
            sleep_elsewhere(length).await;
        }
    }
}

/// Waits on a timer of the library's own runtime, which has timers, and whose time is never paused.
async fn sleep_elsewhere(length: Duration) {
    let (mut done, over) = oneshot::channel::<()>();
    background::handle().spawn(async move {
        tokio::select! {
            () = tokio::time::sleep(length) => {}
            () = done.closed() => {}
        }
    });
    // Nothing is ever sent: the sender is dropped when the time is over.
    let _ = over.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let now = Instant::now();
        assert_eq!(Instant::FAR_FUTURE + Duration::MAX, Instant::FAR_FUTURE);
        assert_eq!(now.saturating_duration_since(now + Duration::from_secs(1)), Duration::ZERO);
        assert_eq!((now + Duration::from_secs(1)).saturating_duration_since(now), Duration::from_secs(1));
        assert!(now.has_passed());
    }

    #[cfg(all(feature = "memory", target_os = "linux"))]
    #[tokio::test(start_paused = true)]
    async fn a_wait_under_paused_time_takes_real_time_and_little_work() {
        use crate::{LockErrorKind, LockManager, backend::Memory};

        let work = || {
            let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            Duration::new(spent.tv_sec.cast_unsigned(), u32::try_from(spent.tv_nsec).expect("below a second"))
        };
        let store = Memory::new();
        let [theirs, ours] = [&store, &store].map(|store| LockManager::new(store.clone()));
        let guard = theirs.lock("k").acquire().await.expect("free");
        // The first manager waits in the queue of the process, the second in the queue of the store.
        for locks in [&theirs, &ours] {
            let (began, before) = (Instant::now(), work());
            let wait = Duration::from_millis(300);
            let error = locks.lock("k").wait(wait).acquire().await.expect_err("held");
            assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
            assert!(Instant::now() >= began + wait);
            let worked = work().saturating_sub(before);
            assert!(worked < wait / 6, "{worked:?} of work");
        }
        guard.release().await.expect("held");
    }
}
