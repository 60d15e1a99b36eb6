//! The background removal of what unfinished attempts may have left in the store.

use std::{fmt, sync::Arc};

use super::Releasable;
use crate::time::clock::Instant;

/// Takes over attempts whose outcome the store does not know, and undoes them in the background by releasing the lock
/// or giving up the place in the queue.
///
/// The library repeats the release of each attempt until the store returns a result instead of an error, or until the
/// lease is certain to have expired.
#[derive(Clone)]
pub struct Cleanup(pub(crate) Arc<dyn ReleasesLater>);

/// Releases attempts in the background.
pub(crate) trait ReleasesLater: Send + Sync {
    /// See [`Cleanup::release_later`].
    fn release_later(self: Arc<Self>, attempt: Arc<dyn Releasable>, until: Instant);
}

impl Cleanup {
    /// Releases `attempt` in the background.
    ///
    /// If the release fails, the library repeats it, but not beyond the moment `until`. This must be the moment by
    /// which a lease granted to the attempt is certain to have expired: one `ttl` after the last moment at which the
    /// store may still grant it. If there is no such moment, for example because the attempt is for a session lock,
    /// pass [`Instant::FAR_FUTURE`].
    ///
    /// This method may be called from a destructor: it neither blocks nor panics, and it needs no runtime.
    pub fn release_later(&self, attempt: Arc<dyn Releasable>, until: Instant) {
        Arc::clone(&self.0).release_later(attempt, until);
    }
}

impl fmt::Debug for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cleanup")
    }
}
