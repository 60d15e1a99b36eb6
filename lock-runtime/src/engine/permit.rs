//! The count of the acquisitions in progress and of the held locks.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::{LockError, LockErrorKind, background, engine::Engine};

/// One of the locks that may be held at the same time, and its acquisition. Keeps the engine alive.
#[derive(Debug)]
pub(crate) struct Permit {
    engine: Arc<Engine>,
    /// Whether the permit counts as an acquisition in progress.
    is_asking: bool,
    /// Whether the permit counts as a held lock.
    counted: AtomicBool,
}

impl Engine {
    /// Counts one acquisition, and one held lock until the permit is dropped.
    pub(crate) fn permit(self: &Arc<Self>) -> Result<Permit, LockError> {
        // Counted before the check that the manager is open, so that a shutdown either waits for this acquisition or is
        // seen by it.
        self.asking.begin();
        let mut permit =
            Permit { engine: Arc::clone(self), is_asking: true, counted: AtomicBool::new(false) };
        self.check_open()?;
        // A lock that cannot be renewed or released is not acquired.
        background::check()?;
        self.check_caller()?;
        *permit.counted.get_mut() = true;
        if self.held.fetch_add(1, Ordering::Relaxed) >= self.limits.held {
            let most = self.limits.held;
            let message = format!("{most} locks are already held or requested, the limit of this manager");
            return Err(LockError::new(LockErrorKind::Overloaded, message));
        }
        Ok(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.entered();
        if *self.counted.get_mut() {
            self.engine.held.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Permit {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Ends the acquisition.
    pub(crate) fn entered(&mut self) {
        if std::mem::replace(&mut self.is_asking, false) {
            self.engine.asking.end();
        }
    }

    /// Returns a permit for the same lock, which is not counted twice.
    pub(crate) fn again(&self) -> Self {
        Self { engine: Arc::clone(&self.engine), is_asking: false, counted: AtomicBool::new(false) }
    }

    /// Returns a permit that counts the held lock from now on, instead of this permit.
    pub(crate) fn hand_on(&self) -> Self {
        let permit = self.again();
        permit.counted.store(self.counted.swap(false, Ordering::Relaxed), Ordering::Relaxed);
        permit
    }
}
