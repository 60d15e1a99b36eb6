//! One guard or several, for code that runs under one lock or under several.

use std::slice;

use tracing::Span;

use crate::{LockError, LockGuard, MultiGuard, backend::BoxFuture, engine::hold, guard};

/// The guards of the locks under which a body runs.
#[derive(Debug)]
pub enum Guards {
    /// One lock.
    One(LockGuard),
    /// Several locks. The loss of one of them counts as the loss of all.
    Several(MultiGuard),
}

impl From<LockGuard> for Guards {
    fn from(guard: LockGuard) -> Self {
        Self::One(guard)
    }
}

impl From<MultiGuard> for Guards {
    fn from(guard: MultiGuard) -> Self {
        Self::Several(guard)
    }
}

impl Guards {
    pub(crate) fn locks(&self) -> &[LockGuard] {
        match self {
            Self::One(guard) => slice::from_ref(guard),
            Self::Several(guard) => guard.locks(),
        }
    }

    /// Returns the span of a section under these locks; `None` unless a subscriber wants the span.
    pub(crate) fn span(&self) -> Option<Span> {
        let locks = self.locks();
        locks.first()?.section_span(locks.len())
    }

    /// Returns whether all the locks can still be relied on at this moment.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        guard::are_valid(self.locks())
    }

    /// Returns the error that states why the locks cannot be relied on.
    #[must_use]
    pub fn loss(&self) -> LockError {
        hold::loss(self.locks().iter().map(LockGuard::turn))
    }

    /// Completes when one of the locks is lost.
    #[must_use]
    pub fn lost(&self) -> BoxFuture<'static, ()> {
        match self {
            Self::One(guard) => Box::pin(guard.lost()),
            Self::Several(guard) => Box::pin(guard.lost()),
        }
    }

    /// Releases the locks as [`LockGuard::leave`] does.
    pub(crate) async fn leave(&mut self) -> Result<(), LockError> {
        match self {
            Self::One(guard) => guard.leave().await,
            Self::Several(guard) => guard.leave().await,
        }
    }
}
