//! Faults on demand, so that programs can test how they handle a loss or an outage.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    LockError,
    time::clock::{self, Instant},
};

/// The switches of one store; see [`Memory`](super::Memory).
#[derive(Debug, Default)]
pub(super) struct Faults {
    failing: AtomicBool,
    delay: watch::Sender<Duration>,
}

impl Faults {
    pub(super) fn set_failing(&self, failing: bool) {
        self.failing.store(failing, Ordering::Release);
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        self.delay.send_replace(delay);
    }

    /// Returns whether a fault is switched on.
    pub(super) fn any(&self) -> bool {
        self.failing.load(Ordering::Acquire) || !self.delay.borrow().is_zero()
    }

    /// Applies the faults that are switched on to a call that began at `began`; returns at once if there are none. At
    /// `limit`, the call is given up.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn pass(&self, began: Instant, limit: Instant) -> Result<(), LockError> {
        self.delay(began, limit).await?;
        if self.failing.load(Ordering::Acquire) {
            return Err(LockError::backend("the in-process store fails on demand (`Memory::set_failing`)"));
        }
        Ok(())
    }

    /// Waits until the delay since `began` has passed. A changed delay also applies to calls that already wait.
    async fn delay(&self, began: Instant, limit: Instant) -> Result<(), LockError> {
        if self.delay.borrow().is_zero() {
            return Ok(());
        }
        let mut delay = self.delay.subscribe();
        loop {
            let due = began + *delay.borrow_and_update();
            tokio::select! {
                biased;
                () = clock::sleep_until(due.min(limit)) => {}
                _ = delay.changed() => continue,
            }
            return if due <= limit {
                Ok(())
            } else {
                Err(LockError::backend(
                    "the in-process store did not answer in time, on demand (`Memory::set_delay`)",
                ))
            };
        }
    }
}
