//! Releases in the background: what was dropped, and what may have been left in the store.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

use crate::{
    backend::{Lease, Released},
    background,
    clock::Instant,
    validity::backoff,
};

/// Repeats each release until the store gives a definite answer or the lease must have ended by itself.
#[derive(Debug, Default)]
pub(crate) struct Releaser {
    pending: AtomicUsize,
    idle: Notify,
}

impl Releaser {
    /// Starts a release; returns at once, from anywhere.
    pub(crate) fn release(self: &Arc<Self>, lease: Arc<dyn Lease>, until: Instant) {
        self.pending.fetch_add(1, Ordering::AcqRel);
        let pending = Pending(Arc::clone(self));
        background::handle().spawn(async move {
            let _pending = pending;
            repeat(&*lease, until).await;
        });
    }

    /// Completes when nothing is left to release.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn drained(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.pending.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.await;
        }
    }
}

/// Counts one release, also when its task is dropped or panics.
struct Pending(Arc<Releaser>);

impl Drop for Pending {
    fn drop(&mut self) {
        if self.0.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

async fn repeat(lease: &dyn Lease, until: Instant) {
    let key = &lease.id().key;
    for attempt in 0.. {
        match lease.release().await {
            Ok(Released::Released) => return tracing::debug!(%key, "released in the background"),
            Ok(Released::NotHeld) => return tracing::debug!(%key, "nothing was left to release"),
            Err(error) if until.has_passed() => {
                return tracing::warn!(%key, %error, "not released; the lease has ended by itself");
            }
            Err(error) => tracing::debug!(%key, %error, "release failed, trying again"),
        }
        tokio::time::sleep(backoff(attempt)).await;
    }
}
