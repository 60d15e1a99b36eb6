//! The marks of periods, in a store with session locks: which period of a scheduled job has been run.

use std::time::Duration;

use super::BoxFuture;
use crate::{LockError, LockKey, OwnerToken};

/// A store that marks the periods of scheduled jobs ([`once_per`](crate::Lock::once_per)) with entries that outlast the
/// client's session.
///
/// A job has two entries, which take turns: one for its even periods, one for its odd periods. Therefore the store keeps
/// two entries per job, however many periods have passed.
pub trait Marks: Send + Sync {
    /// Sets the mark, unless the entry names this period with another owner, or a later period.
    ///
    /// A later period that is further ahead than the next period of the entry was marked by a client with a wrong clock. It
    /// must not keep the job from running until then, so the store treats such a mark as removed: by its own clock, or by
    /// that of the client, which has to be read after the entry.
    ///
    /// The call may be repeated with the same owner, and recognises its own mark. After [`remove`](Self::remove) has
    /// completed, a request of an earlier call with the same owner must not set the mark any more.
    ///
    /// An error means that the outcome is unknown, unless the error is [permanent](LockError::is_permanent): the mark is
    /// then not set. The library removes a mark that is in doubt.
    ///
    /// # Cancel safety
    /// May be dropped at any time. The outcome is then unknown.
    fn set<'a>(&'a self, mark: &'a Mark) -> BoxFuture<'a, Result<Marked, LockError>>;

    /// Removes the mark if it has this owner, so that another client can run the period. Otherwise, the method changes
    /// nothing that another client could notice.
    ///
    /// # Cancel safety
    /// May be dropped at any time. The library then repeats the call.
    fn remove<'a>(&'a self, mark: &'a Mark) -> BoxFuture<'a, Result<(), LockError>>;
}

/// The mark of a period.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Mark {
    /// The name of the entry: that of the job's lock, with an ending that no lock has.
    pub key: LockKey,
    /// The number of the period, counted from 1970.
    pub period: u64,
    /// The length of the period, which all marks of this name have in common.
    pub length: Duration,
    /// Who sets the mark: a new owner for each attempt.
    pub owner: OwnerToken,
    /// How long the mark is of use from now on: until the period has ended on the clocks of all clients.
    pub lasts: Duration,
}

/// The outcome of [`Marks::set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Marked {
    /// The mark is set, and has this owner.
    Set,
    /// Another owner has marked this period, or a later one.
    Taken,
}
