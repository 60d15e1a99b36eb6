//! The count of the acquisitions in progress and of the held locks.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::{LockError, LockErrorKind, background, engine::Engine};

/// The right to acquire and hold one more lock within the limit. Keeps the engine alive.
#[derive(Debug)]
pub(crate) struct Permit {
    engine: Arc<Engine>,
    /// Whether the permit counts as an acquisition in progress.
    is_asking: bool,
    /// Whether the permit counts as a held lock.
    counted: AtomicBool,
}

impl Engine {
    /// Returns a permit, which counts as an acquisition in progress until [`entered`](Permit::entered) is called, and
    /// as a held lock until the permit is dropped.
    pub(crate) fn permit(self: &Arc<Self>) -> Result<Permit, LockError> {
        // The acquisition is counted before the check that the manager is open, so that a shutdown either waits for
        // this acquisition or makes the check fail.
        self.asking.begin();
        let mut permit =
            Permit { engine: Arc::clone(self), is_asking: true, counted: AtomicBool::new(false) };
        self.check_ready()?;
        *permit.counted.get_mut() = true;
        self.requested.fetch_add(1, Ordering::Relaxed);
        if self.held.fetch_add(1, Ordering::Relaxed) >= self.limits.held {
            let most = self.limits.held;
            let message = format!("{most} locks are already held or requested, the limit of this manager");
            return Err(LockError::new(LockErrorKind::Overloaded, message));
        }
        Ok(permit)
    }
}

impl Engine {
    /// Fails if the store must not be asked now. The caller has counted its acquisition as one in progress.
    pub(crate) fn check_ready(&self) -> Result<(), LockError> {
        self.check_open()?;
        // Without the library's own thread, the lock could be neither renewed nor released.
        background::check()?;
        self.check_caller()
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

    /// Counts the acquisition as finished.
    pub(crate) fn entered(&mut self) {
        if std::mem::replace(&mut self.is_asking, false) {
            self.engine.asking.end();
            if *self.counted.get_mut() {
                self.engine.requested.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns another permit for the same lock, without counting the lock twice.
    pub(crate) fn again(&self) -> Self {
        Self { engine: Arc::clone(&self.engine), is_asking: false, counted: AtomicBool::new(false) }
    }

    /// Returns a permit that counts the held lock from now on, in place of this permit.
    pub(crate) fn hand_on(&self) -> Self {
        let permit = self.again();
        permit.counted.store(self.counted.swap(false, Ordering::Relaxed), Ordering::Relaxed);
        permit
    }
}
