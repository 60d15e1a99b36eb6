//! Faults on demand, so that programs can test how they take a loss or an outage.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use crate::{LockError, LockErrorKind};

/// The switches of one store; see [`Memory`](super::Memory).
#[derive(Debug, Default)]
pub(super) struct Faults {
    failing: AtomicBool,
    delay_micros: AtomicU64,
}

impl Faults {
    pub(super) fn set_failing(&self, failing: bool) {
        self.failing.store(failing, Ordering::Release);
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        self.delay_micros.store(u64::try_from(delay.as_micros()).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// Passes at once unless a fault is switched on.
    pub(super) async fn pass(&self) -> Result<(), LockError> {
        let delay = self.delay_micros.load(Ordering::Acquire);
        if delay > 0 {
            tokio::time::sleep(Duration::from_micros(delay)).await;
        }
        if self.failing.load(Ordering::Acquire) {
            return Err(LockError::new(
                LockErrorKind::Backend,
                "the in-process store fails on demand (`Memory::set_failing`)",
            ));
        }
        Ok(())
    }
}
