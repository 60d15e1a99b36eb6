//! One guard or several, for what runs under either.

use std::{
    future::{Future, poll_fn},
    slice,
    sync::Arc,
    task::Poll,
};

use crate::{LockError, LockGuard, MultiGuard, backend::BoxFuture, clock::Instant, hold::Turn};

/// What covers a body.
#[derive(Debug)]
pub enum Guards {
    /// One lock.
    One(LockGuard),
    /// Several, of which none may be lost.
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

    /// Whether all of them can still be relied on at this moment.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        are_valid(self.locks())
    }

    /// Why they cannot be relied on.
    #[must_use]
    pub fn loss(&self) -> LockError {
        loss(self.locks().iter().map(LockGuard::turn))
    }

    /// Completes when one of them is lost.
    #[must_use]
    pub fn lost(&self) -> BoxFuture<'static, ()> {
        match self {
            Self::One(guard) => Box::pin(guard.lost()),
            Self::Several(guard) => Box::pin(guard.lost()),
        }
    }

    /// Releases them.
    ///
    /// # Errors
    /// As [`LockGuard::release`].
    pub async fn release(self) -> Result<(), LockError> {
        match self {
            Self::One(guard) => guard.release().await,
            Self::Several(guard) => guard.release().await,
        }
    }
}

pub(crate) fn are_valid(held: &[LockGuard]) -> bool {
    held.iter().all(LockGuard::is_valid)
}

/// Why they cannot be relied on: the loss of one, which ended the others.
pub(crate) fn loss<'a>(held: impl Iterator<Item = &'a Arc<Turn>>) -> LockError {
    let now = Instant::now();
    let cause = held.min_by_key(|turn| (turn.is_valid(now), turn.is_covered(now)));
    cause.expect("no guard is without a lock").loss()
}

/// Completes with the loss of one of them.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn any_lost(held: &[LockGuard]) -> LockError {
    let mut alarms: Vec<_> = held.iter().map(|held| (held, Box::pin(held.lost()))).collect();
    poll_fn(|cx| {
        let lost =
            alarms.iter_mut().find_map(|(held, alarm)| alarm.as_mut().poll(cx).is_ready().then_some(held));
        lost.map_or(Poll::Pending, |held| Poll::Ready(held.loss()))
    })
    .await
}
