//! Several locks that are acquired together: all of them, or none.

use std::{fmt, pin::pin, sync::Arc, time::Duration};

use crate::{
    LockError, LockErrorKind, LockGuard, LockKey, MultiGuard,
    backend::{LockId, Mode, Wait},
    engine::{
        Engine,
        in_flight::InFlightGuard,
        request::Request,
        unpolled::{self, Withheld},
    },
    guard,
    lock::acquire::{self, Pending, Started, trace::traced},
    metrics::Acquisition,
    options::{LockOptions, WaitFor, option_methods},
    section::scope,
};

/// Several named locks with their options, to be held together.
///
/// The locks are not held until they are [acquired](Self::acquire). A `MultiLock` can be kept and acquired any
/// number of times.
///
/// The locks are acquired in the order of their names, whatever order they are given in, so two callers that need the
/// same locks cannot deadlock. A name that is given twice counts once.
///
/// This order prevents deadlocks only among locks that are acquired together: code that is already running under a lock
/// should not acquire another lock. Acquire all the locks at once instead. With [`reentrant`](Self::reentrant), code
/// that is already running under some of the locks may acquire the whole set, but such code is then not protected from
/// deadlocks.
///
/// The options apply to each of the locks, except that [`wait`](Self::wait) limits the time for acquiring all the
/// locks, and [`hold_at_least`](Self::hold_at_least) counts from the acquisition of the last lock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = lock_runtime::LockManager::connect("memory:").await?;
/// let guard = locks.all(["account:7", "account:3"]).acquire().await?;
/// let held = guard.held();
/// let section = async {
///     for account in ["account:3", "account:7"] {
///         println!("{account} with fence {}", held.get(account).expect("held").fencing_token());
///     }
/// };
/// guard.run(section).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "locks do nothing until they are acquired"]
pub struct MultiLock {
    engine: Arc<Engine>,
    /// The locks in the order of acquisition, without duplicates.
    locks: Result<Arc<[LockId]>, LockError>,
    pub(crate) options: LockOptions,
}

impl MultiLock {
    pub(crate) fn new(
        engine: Arc<Engine>,
        keys: Result<Vec<LockKey>, LockError>,
        options: LockOptions,
    ) -> Self {
        let locks = keys.and_then(|keys| {
            if keys.is_empty() {
                return Err(LockError::new(
                    LockErrorKind::InvalidOptions,
                    "no key was given: name at least one lock, or leave out the locking",
                ));
            }
            let lock = |key| LockId { key, mode: Mode::Exclusive };
            let mut locks: Vec<_> = keys.into_iter().map(lock).collect();
            locks.sort_unstable();
            locks.dedup();
            Ok(locks.into())
        });
        Self { engine, locks, options }
    }

    option_methods!();

    /// Sets the [class](LockKey::with_class) of all these locks, for metrics and traces. The default is the class of
    /// each key, or else the manager's.
    pub fn class(mut self, class: &'static str) -> Self {
        let classed =
            |LockId { key, mode }: &LockId| LockId { key: key.clone().with_class(class), mode: *mode };
        self.locks = self.locks.map(|locks| locks.iter().map(classed).collect());
        self
    }

    /// Acquires all the locks, one after the other, waiting for at most [`wait`](Self::wait) in total.
    ///
    /// If one of the locks cannot be acquired, the locks that were acquired before it are released.
    ///
    /// # Errors
    /// * the errors of [`Lock::acquire`](crate::Lock::acquire); [`LockError::key`] returns the key of the lock that the
    ///   error is about;
    /// * [`InvalidOptions`](LockErrorKind::InvalidOptions) if no key was given;
    /// * [`Lost`](LockErrorKind::Lost) if one of the locks was lost during the wait for the others.
    ///
    /// # Cancel safety
    /// The same as [`Lock::acquire`](crate::Lock::acquire), for each of the locks.
    pub async fn acquire(&self) -> Result<MultiGuard, LockError> {
        self.acquire_until(self.options.wait.starting_now()).await
    }

    /// Makes a single attempt to acquire all the locks. Returns `None` if another caller holds one of the locks.
    ///
    /// # Errors
    /// Returns the same errors as [`acquire`](Self::acquire), except `Contended`. If the store does not respond, this
    /// method returns `Backend` once the [timeouts in the store's URL](crate::docs::stores#how-their-locks-behave) have
    /// passed. `Timeout` is possible only if the future was not polled in time.
    ///
    /// # Cancel safety
    /// The same as [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>, LockError> {
        match self.acquire_until(Wait::No).await {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.kind() == LockErrorKind::Contended => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn acquire_until(&self, wait: Wait) -> Result<MultiGuard, LockError> {
        let locks = self.locks.as_ref().map_err(Clone::clone)?;
        traced(&self.engine, locks, pin!(self.acquire_all(locks, wait))).await
    }

    async fn acquire_all(&self, locks: &[LockId], wait: Wait) -> Result<MultiGuard, LockError> {
        // `hold_at_least` counts from the time at which all the locks are held, so `MultiGuard::new` applies it.
        let options = LockOptions { hold_at_least: Duration::ZERO, ..self.options };
        let request = |lock: &LockId| Request { lock: lock.clone(), options, wait };
        let requests: Arc<[Request]> = locks.iter().map(request).collect();
        let can = self.engine.backend.capabilities();
        requests.iter().try_for_each(|request| request.check_mode(can))?;
        self.options.check(can)?;
        // Re-entry is checked for all the locks before the first lock is acquired or waited for.
        for request in requests.iter() {
            if let Some(Err(error)) = scope::reenter(&self.engine, request) {
                return Err(error.with_key(&request.lock.key));
            }
        }
        loop {
            // During the wait for the first lock, no lock is held.
            let first = acquire::acquire(&self.engine, &requests[0]).await;
            let held = vec![first.map_err(|error| error.with_key(&requests[0].lock.key))?];
            match self.acquire_others(held, &requests).await? {
                Some(held) => return MultiGuard::new(held, &self.options),
                None if wait.end().has_passed() => return Err(acquire::not_polled()),
                None => {}
            }
        }
    }

    /// Acquires all of `requests` except the first, which is held. Returns `None` if the acquisition was abandoned
    /// because it was not polled.
    async fn acquire_others(
        &self,
        mut held: Vec<LockGuard>,
        requests: &Arc<[Request]>,
    ) -> Result<Option<Vec<LockGuard>>, LockError> {
        while let Some(request) = requests.get(held.len()) {
            let (id, lock) = (self.engine.cohorts.next_id(), &request.lock);
            let acquisition = request.meter(&self.engine.metrics).begin();
            match acquire::start(&self.engine, request, id).await {
                Ok(Started::Acquired(guard)) => held.push(acquire::ended(acquisition, Ok(guard))?),
                Ok(Started::Waits { pending, .. }) => {
                    let pending = (acquisition, pending);
                    let (engine, requests) = (Arc::clone(&self.engine), Arc::clone(requests));
                    let others = wait_for_others(engine, requests, held, pending, id);
                    // The boxed future owns the locks that are already held: if it is given up, these locks are
                    // released.
                    let others = Box::pin(others);
                    let others =
                        unpolled::watch(&self.engine.waiting, id, lock, Withheld::Locks, None, others);
                    return others.await.transpose();
                }
                Err(error) => {
                    acquisition.failed(error.kind());
                    return Err(error.with_key(&lock.key));
                }
            }
        }
        Ok(Some(held))
    }
}

/// Acquires the locks of `requests` that are not held yet. `first` is the pending acquisition of the first of these
/// locks.
async fn wait_for_others(
    engine: Arc<Engine>,
    requests: Arc<[Request]>,
    held: Vec<LockGuard>,
    first: (Acquisition, Pending),
    id: u64,
) -> Result<Vec<LockGuard>, LockError> {
    // Declared first, so that this acquisition is counted until the held locks are dropped.
    let _asking = InFlightGuard::new(Arc::clone(&engine.asking));
    let (mut held, mut first) = (held, Some(first));
    while let Some(request) = requests.get(held.len()) {
        let next = async {
            let (acquisition, started) = match first.take() {
                Some((acquisition, pending)) => (acquisition, Ok(Started::Waits { pending, task: None })),
                None => (request.meter(&engine.metrics).begin(), acquire::start(&engine, request, id).await),
            };
            let acquired = match started {
                Ok(Started::Acquired(guard)) => Ok(guard),
                Ok(Started::Waits { pending, .. }) => {
                    let _waits = (acquisition.waits(), InFlightGuard::new(Arc::clone(&engine.unanswered)));
                    pending.await
                }
                Err(error) => Err(error),
            };
            acquire::ended(acquisition, acquired)
        };
        let next = tokio::select! {
            biased;
            next = next => next.map_err(|error: LockError| error.with_key(&request.lock.key))?,
            loss = guard::any_lost(&held) => return Err(loss),
        };
        held.push(next);
    }
    Ok(held)
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLock")
            .field("locks", &self.locks)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
