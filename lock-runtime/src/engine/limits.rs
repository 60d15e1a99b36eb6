//! How many waiters and held locks are allowed, and the count of those that are held.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::{LockError, LockErrorKind};

/// How many waiters and held locks are allowed; more are refused with [`LockErrorKind::Overloaded`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Waiters for one lock in this process; 1,024 unless set.
    pub waiters_per_key: usize,
    /// Waiters in this process; 65,536 unless set.
    pub waiters: usize,
    /// Locks held through one store's managers, with those being asked for; 1,048,576 unless set.
    pub held: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { waiters_per_key: 1_024, waiters: 65_536, held: 1_048_576 }
    }
}

/// The locks of one store that are held or asked for.
#[derive(Debug)]
pub(crate) struct HeldCount {
    count: AtomicUsize,
    most: usize,
}

impl HeldCount {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { count: AtomicUsize::new(0), most: limits.held })
    }

    /// Counts one more, until the answer is dropped.
    pub(crate) fn permit(self: &Arc<Self>) -> Result<Permit, LockError> {
        let permit = Permit { held: Arc::clone(self) };
        if self.count.fetch_add(1, Ordering::Relaxed) >= self.most {
            return Err(LockError::new(
                LockErrorKind::Overloaded,
                format!("{} locks are held or asked for already, the limit of this manager", self.most),
            ));
        }
        Ok(permit)
    }
}

/// One of the locks that may be held at the same time.
#[derive(Debug)]
pub(crate) struct Permit {
    held: Arc<HeldCount>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.held.count.fetch_sub(1, Ordering::Relaxed);
    }
}
