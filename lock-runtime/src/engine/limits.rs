/// Upper bounds on waiters and held locks.
///
/// Set the limits with [`LockManager::with_limits`](crate::LockManager::with_limits). A manager shares its counts with
/// its clones and with managers made from it by [`with_prefix`](crate::LockManager::with_prefix); other managers count
/// separately. If a limit is reached, further acquisitions fail with
/// [`Overloaded`](crate::LockErrorKind::Overloaded).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The maximum number of waiters for one lock; 1,024 by default.
    pub waiters_per_key: usize,
    /// The maximum number of waiters for all locks together; 65,536 by default.
    pub waiters: usize,
    /// The maximum number of locks that are held or being acquired; 1,048,576 by default.
    pub held: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { waiters_per_key: 1_024, waiters: 65_536, held: 1_048_576 }
    }
}
