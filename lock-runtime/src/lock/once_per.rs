//! Periods: a scheduled job that several processes start runs at most once in each.
//!
//! The period is marked in the store before the lock is acquired, and the mark stays when the lock is granted: also if the
//! body fails or its process dies. If the lock is not acquired, the mark is removed, so that another client can run the
//! period.

mod mark;
mod period;

use std::{pin::pin, sync::Arc, time::Duration};

use super::{
    Lock,
    acquire::{Started, ended, not_polled, start, unless_forked},
};
use crate::{
    LockError, LockErrorKind, LockGuard,
    engine::{
        Engine,
        in_flight::InFlightGuard,
        request::Request,
        unpolled::{self, Withheld},
    },
    options::check_period,
    section::scope,
};

impl Lock {
    /// Lets the lock be acquired at most once in each period of this length, among all processes: for a scheduled job that
    /// each of several processes starts, and one of them should run. The length is between 1 s and 31 days. By default,
    /// there is no such limit.
    ///
    /// Periods are counted in UTC, from the beginning of 1970: those of 24 hours begin at midnight. The first acquisition
    /// in a period succeeds. From then on, others fail at once with [`AlreadyRun`](crate::LockErrorKind::AlreadyRun) until
    /// the period is over: also if the lock is free again, if the body has failed, or if its process has died. So **a
    /// period whose run fails is not run again**; if it should be, let the body retry. [`LockGuard::period`] tells the
    /// body which period it runs.
    ///
    /// An acquisition that does not get the lock uses up no period: for example, because the run of the period before
    /// still holds the lock at the end of the wait, because the store fails, or because the future is dropped. But while
    /// such an acquisition waits, or its mark is removed, others fail with `AlreadyRun`; a caller has to start again
    /// afterwards, or the period is not run. If a process ends while a mark is being removed, the period is lost, so
    /// await [`shutdown`](crate::LockManager::shutdown) at the end.
    ///
    /// # Clocks and timers
    /// An acquisition in the last tenth of a period counts for the next period, because timers fire a little early, and
    /// clocks differ. The clocks of the processes may differ by less than a tenth of the period. If they differ by more, a
    /// period may be run twice.
    ///
    /// Choose the shortest time between two starts of the schedule as the period, such as 24 hours for a job at 02:30
    /// each night, and let no start of the schedule fall into the last tenth of a period or close to it: with periods of
    /// 24 hours, the last tenth begins at 21:36 UTC.
    ///
    /// # What it needs
    /// Each acquisition makes one more request to the store; the page
    /// [stores](crate::docs::stores#once-per-period) says what it writes. If data of the store are lost, the period may be
    /// run again. [`lead`](Self::lead) does not take this option, and several locks ([`MultiLock`](crate::MultiLock)) have
    /// none.
    ///
    /// # Errors
    /// Acquiring then fails with these errors, too:
    /// * [`AlreadyRun`](crate::LockErrorKind::AlreadyRun) if another start has this period;
    ///   [`try_acquire`](Self::try_acquire) returns this error as well;
    /// * [`WouldDeadlock`](crate::LockErrorKind::WouldDeadlock) if the calling code re-enters a lock that was acquired without
    ///   this option;
    /// * [`InvalidOptions`](crate::LockErrorKind::InvalidOptions) if the length is out of bounds, or, with Redlock, if
    ///   six fifths of it are longer than the `max_ttl` of nodes that are not durable;
    /// * [`Unsupported`](crate::LockErrorKind::Unsupported) if a store from outside this crate has session locks and does
    ///   not mark periods ([`Backend::marks`](crate::backend::Backend::marks)).
    ///
    /// # Example
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// # let locks = lock_runtime::LockManager::connect("memory:once_per").await?;
    /// use std::time::Duration;
    ///
    /// use lock_runtime::LockErrorKind;
    ///
    /// let report = locks.lock("nightly report").once_per(Duration::from_secs(24 * 60 * 60));
    /// let guard = report.acquire().await?;
    /// println!("the report of {:?}", guard.period().expect("set by `once_per`"));
    /// guard.release().await?;
    ///
    /// // Another process whose timer fires a little later:
    /// let skipped = report.acquire().await.unwrap_err();
    /// assert_eq!(skipped.kind(), LockErrorKind::AlreadyRun);
    /// # Ok(())
    /// # }
    /// ```
    pub fn once_per(mut self, period: Duration) -> Self {
        self.once_per = Some(period);
        self
    }
}

/// Acquires a lock at most once in each period of `length`.
pub(super) async fn acquire(
    engine: &Arc<Engine>,
    request: &Request,
    length: Duration,
) -> Result<LockGuard, LockError> {
    let acquisition = request.meter(&engine.metrics).begin();
    let acquired = async {
        let can = engine.backend.capabilities();
        request.check(can)?;
        check_period(length, can)?;
        if let Some(again) = scope::reenter(engine, request) {
            return again.and_then(of_a_period);
        }
        loop {
            let id = engine.cohorts.next_id();
            let pending = Box::pin(mark_and_acquire(Arc::clone(engine), request.clone(), length, id));
            let _waits = (acquisition.waits(), InFlightGuard::new(Arc::clone(&engine.unanswered)));
            // The mark keeps other clients from the period.
            let lock = &request.lock;
            match unpolled::watch(&engine.waiting, id, lock, Withheld::Locks, None, pending).await {
                Some(acquired) => return acquired,
                None if request.wait.end().has_passed() => return Err(not_polled()),
                None => {}
            }
        }
    };
    let acquired = unless_forked(engine, pin!(acquired)).await;
    ended(acquisition, acquired)
}

/// Marks the period, and acquires the lock. This future owns the mark: if it is dropped before the lock is acquired, the
/// mark is removed.
async fn mark_and_acquire(
    engine: Arc<Engine>,
    request: Request,
    length: Duration,
    id: u64,
) -> Result<LockGuard, LockError> {
    // Declared first, so that this acquisition is counted until the removal of its mark has begun.
    let _asking = InFlightGuard::new(Arc::clone(&engine.asking));
    engine.check_ready()?;
    let mark = mark::set(&engine, &request, length).await?;
    let acquired = match start(&engine, &request, id).await {
        Ok(Started::Acquired(guard)) => Ok(guard),
        Ok(Started::Waits { pending, .. }) => pending.await,
        Err(error) => Err(error),
    };
    match acquired {
        Ok(guard) => {
            let _ = guard.turn().period.set(mark.period.beginning());
            mark.keep();
            Ok(guard)
        }
        Err(error) => {
            mark.remove().await;
            Err(error)
        }
    }
}

/// Checks a guard of code that re-enters its lock: the code is a part of the run of a period, or has marked none.
fn of_a_period(guard: LockGuard) -> Result<LockGuard, LockError> {
    if guard.period().is_some() {
        return Ok(guard);
    }
    Err(LockError::new(
        LockErrorKind::WouldDeadlock,
        "this code is already running under the lock, which was acquired without `once_per`, so it runs no period: acquire \
         the lock with `once_per` at first",
    ))
}

#[cfg(test)]
mod tests;
