//! Upper bounds on waiters and held locks.

/// Upper bounds on waiters and held locks.
///
/// More are refused with [`LockErrorKind::Overloaded`](crate::LockErrorKind::Overloaded).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Waiters for one lock in this process; 1,024 unless set.
    pub waiters_per_key: usize,
    /// Waiters in this process; 65,536 unless set.
    pub waiters: usize,
    /// Locks held or being acquired through the managers of one store; 1,048,576 unless set.
    pub held: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { waiters_per_key: 1_024, waiters: 65_536, held: 1_048_576 }
    }
}
