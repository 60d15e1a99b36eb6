//! Leading: a body that runs while its lock is held, and runs again after a loss.

use std::{future::Future, time::Duration};

use crate::{
    HeldLock, Lock, LockError, LockErrorKind,
    log_limiter::LogLimiter,
    time::{
        backoff::{LONGEST_PAUSE, backoff},
        clock::{self, Instant},
    },
};

impl Lock {
    /// Runs `body` under the lock whenever the lock is held, so that it runs in one process at a time, and returns the
    /// body's result. For background work that exactly one of several processes should do, such as polling a queue or
    /// running scheduled jobs: each process calls `lead`, one of them leads, and the others wait to succeed it.
    ///
    /// Each run of the body is a *term*. `lead` waits for the lock without a limit, and then passes `body` a handle to the
    /// lock, whose [fencing token](HeldLock::fencing_token) is larger than those of all earlier terms. If the lock is lost,
    /// also to an operator who [revokes](crate::LockManager::revoke) it, the body's future is dropped as by
    /// [`run`](crate::LockGuard::run), and `lead` waits for the lock again. When the
    /// body completes while the lock is held, `lead` releases the lock and returns the result. If the body panics, the lock
    /// is released in the background, and `lead` panics.
    ///
    /// `lead` continues during an outage, or while one of the [`Limits`](crate::Limits) is reached. It pauses after each
    /// failure and each loss: at first for 10 to 20 ms, and for up to 1 s if they repeat.
    ///
    /// # Options
    /// * If the leader crashes, the lock becomes free within its [`ttl`](Self::ttl), or when its session has ended: see
    ///   [what frees a lock after a crash](crate::docs::stores#how-their-locks-behave).
    /// * [`wait`](Self::wait) and [`max_hold`](Self::max_hold) have no effect: neither the wait nor a term has a limit. A
    ///   body that hangs therefore leads until its process ends. Use a timeout within the body.
    /// * [`hold_at_least`](Self::hold_at_least) counts from the beginning of each term.
    /// * With [`reentrant`](Self::reentrant), code that already runs under the lock may lead, until the outer guard loses
    ///   the lock.
    ///
    /// # Stopping
    /// To stop leading, drop the future, for example by `select!`, and then await
    /// [`shutdown`](crate::LockManager::shutdown), so that the lock is free for the next leader before the process ends.
    ///
    /// `shutdown` alone ends the wait for the lock, but not a term: like any holder, the leader keeps the lock until its
    /// body completes or the lock is lost.
    ///
    /// # Errors
    /// * [`ShutDown`](LockErrorKind::ShutDown) if the manager has been shut down while the lock was not held;
    /// * [`InvalidOptions`](LockErrorKind::InvalidOptions) if an option is invalid, or if [`auto_renew`](Self::auto_renew)
    ///   is off (each term would be lost at the end of its `ttl`), or if [`once_per`](Self::once_per) is set;
    /// * [`Lost`](LockErrorKind::Lost) if the calling code is already running under the lock, and that lock has been lost;
    /// * the other errors of [`acquire`](Self::acquire) that are not [retryable](LockError::is_retryable), such as
    ///   [`WouldDeadlock`](LockErrorKind::WouldDeadlock), or [`Backend`](LockErrorKind::Backend) because of a wrong
    ///   password.
    ///
    /// # Cancel safety
    /// If the future is dropped, the body is dropped, and then the lock is released in the background.
    ///
    /// Poll the future until it completes. While it is not polled, the body does not run, but the lease is still renewed,
    /// so that no other process can lead. (During the wait for the lock, an unpolled future keeps the lock from others for
    /// about two seconds at most, as with [`acquire`](Self::acquire).)
    ///
    /// # Example
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// # let locks = lock_runtime::LockManager::connect("memory:lead").await?;
    /// # async fn next_job() -> Option<&'static str> { None }
    /// # async fn stopped() { std::future::pending().await }
    /// let lock = locks.lock("jobs");
    /// let leading = lock.lead(|held| async move {
    ///     println!("leading with fence {}", held.fencing_token());
    ///     while let Some(job) = next_job().await {
    ///         println!("{job}");
    ///     }
    /// });
    /// tokio::select! {
    ///     led = leading => led?,
    ///     () = stopped() => {}
    /// }
    /// locks.shutdown().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lead<F, B>(&self, mut body: F) -> Result<B::Output, LockError>
    where
        F: FnMut(HeldLock) -> B,
        B: Future,
    {
        if !self.options.auto_renew {
            return Err(self.about_this(LockError::new(
                LockErrorKind::InvalidOptions,
                "`lead` needs auto_renew, because without it the lock is lost at the end of each ttl",
            )));
        }
        if self.once_per.is_some() {
            return Err(self.about_this(LockError::new(
                LockErrorKind::InvalidOptions,
                "`lead` has no periods: use `once_per` with `acquire`, or run the schedule in the body of `lead`",
            )));
        }
        let lock = self.clone().wait_forever().max_hold(Duration::MAX);
        let mut failures = 0;
        loop {
            let began = Instant::now();
            match lock.acquire().await {
                Ok(guard) => {
                    let held = guard.held();
                    // `body` is called by the section's first poll, and so under the lock.
                    match guard.run(async { body(held).await }).await {
                        Ok(output) => return Ok(output),
                        Err(loss) => tracing::debug!(%loss, "the term is over, leading again"),
                    }
                }
                // A section that runs under this lock has lost the lock, and has to stop.
                Err(error) if error.kind() == LockErrorKind::Lost || !error.is_retryable() => {
                    return Err(error);
                }
                Err(error) => log(&error),
            }
            if Instant::now() >= began + LONGEST_PAUSE {
                failures = 0;
            }
            tokio::select! {
                biased;
                error = self.engine.closed() => return Err(self.about_this(error)),
                () = clock::sleep_until(Instant::now() + backoff(failures)) => {}
            }
            failures = failures.saturating_add(1);
        }
    }

    /// Adds the key to `error`, if the key is valid.
    fn about_this(&self, error: LockError) -> LockError {
        match &self.key {
            Ok(key) => error.with_key(key),
            Err(malformed) => malformed.clone(),
        }
    }
}

/// Logs an error after which `lead` asks for the lock again.
fn log(error: &LockError) {
    static CANNOT_LEAD: LogLimiter = LogLimiter::new();
    CANNOT_LEAD.log(
        error.message(),
        error,
        || tracing::warn!(%error, "the lock to lead under was not acquired, asking again"),
        |more, error| {
            tracing::warn!(
                more,
                error,
                "more locks to lead under were not acquired; the last error is named"
            );
        },
    );
}

#[cfg(test)]
mod tests;
