//! The store's part of a hold.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    backend::{BoxFuture, Held, Lease, Releasable, Session},
    time::{clock::Instant, deadline},
};

/// The store's part of a hold, and the hold's deadline.
#[derive(Debug)]
pub(crate) enum InStore {
    /// Renewals move the deadline.
    Lease { lease: Arc<dyn Lease>, deadline: AtomicU64 },
    /// The store moves the deadline.
    Session(Arc<dyn Session>),
}

impl InStore {
    /// Returns the store's part of a new hold, and the time until which the hold is valid without renewal.
    pub(super) fn new(held: Held, ttl: Duration) -> (Self, Instant) {
        match held {
            Held::Lease { lease, valid_until } => {
                (Self::Lease { lease, deadline: AtomicU64::new(valid_until.as_nanos()) }, valid_until)
            }
            Held::Session { session, since } => (Self::Session(session), deadline::valid_until(since, ttl)),
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        match self {
            Self::Lease { deadline, .. } => Instant::from_nanos(deadline.load(Ordering::Acquire)),
            Self::Session(session) => session.valid_until(),
        }
    }

    /// Returns the lease, which has to be renewed and may be handed over; `None` for a session lock.
    pub(crate) fn lease(&self) -> Option<&Arc<dyn Lease>> {
        match self {
            Self::Lease { lease, .. } => Some(lease),
            Self::Session(_) => None,
        }
    }

    pub(crate) fn session(&self) -> Option<&Arc<dyn Session>> {
        match self {
            Self::Lease { .. } => None,
            Self::Session(session) => Some(session),
        }
    }

    pub(crate) fn as_releasable(&self) -> &dyn Releasable {
        match self {
            Self::Lease { lease, .. } => &**lease,
            Self::Session(session) => &**session,
        }
    }

    /// Returns the store's part of the hold, for its release.
    pub(crate) fn releasable(&self) -> Arc<dyn Releasable> {
        match self {
            Self::Lease { lease, .. } => Arc::<dyn Lease>::clone(lease),
            Self::Session(session) => Arc::<dyn Session>::clone(session),
        }
    }

    /// Completes when the store knows that another client waits for the lock.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) fn wanted(&self) -> BoxFuture<'_, ()> {
        match self {
            Self::Lease { lease, .. } => lease.wanted(),
            Self::Session(session) => session.wanted(),
        }
    }

    /// Returns the time by which the hold must have ended in the store, if the hold is not renewed after `now`.
    ///
    /// For a session lock, returns [`Instant::FAR_FUTURE`], because only the store knows when the session ends.
    pub(crate) fn gone_by(&self, now: Instant, ttl: Duration) -> Instant {
        match self {
            Self::Lease { .. } => now.min(self.deadline()) + ttl,
            Self::Session(_) => Instant::FAR_FUTURE,
        }
    }
}
