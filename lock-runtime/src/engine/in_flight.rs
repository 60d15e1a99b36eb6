//! A count of the operations in progress, and a wait until there are none.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

use crate::sync::check_or_wait;

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    count: AtomicUsize,
    none: Notify,
}

/// One operation, which is counted until this guard is dropped, also by a panic.
#[derive(Debug)]
pub(crate) struct InFlightGuard(Arc<InFlight>);

impl InFlightGuard {
    pub(crate) fn new(in_flight: Arc<InFlight>) -> Self {
        in_flight.begin();
        Self(in_flight)
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl InFlight {
    /// Counts an operation. The caller calls [`end`](Self::end) when the operation is over.
    pub(crate) fn begin(&self) {
        // `SeqCst`, like the flag that a shutdown sets before it reads the count: either the shutdown counts this
        // operation, or the operation finds the flag set.
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn end(&self) {
        if self.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.none.notify_waiters();
        }
    }

    /// Returns the number of operations.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Completes when the count is zero.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn drained(&self) {
        let is_none = || (self.count() == 0).then_some(());
        while check_or_wait(&self.none, is_none).await.is_none() {}
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Waker},
        time::Duration,
    };

    use crate::{LockErrorKind, mock::Mock};

    #[cfg(feature = "memory")]
    #[tokio::test]
    async fn no_place_is_left_in_the_store_when_the_shutdown_returns() {
        let store = crate::backend::Memory::new();
        let [theirs, ours] = [&store, &store].map(|store| crate::LockManager::new(store.clone()));
        let guard = theirs.lock("k").acquire().await.expect("free");
        let lock = ours.lock("k").wait_forever();
        let waiter = tokio::spawn(async move { lock.acquire().await.map(drop) });
        crate::mock::until("it waits in the store", || store.waiting("k") == 1).await;
        ours.shutdown().await;
        assert_eq!(store.waiting("k"), 0);
        let error = waiter.await.expect("no panic").expect_err("shut down");
        assert_eq!(error.kind(), LockErrorKind::ShutDown);
        guard.release().await.expect("held");
    }

    #[tokio::test]
    async fn the_store_is_not_asked_after_the_end() {
        let store = Mock::new();
        let locks = store.manager();
        let guard = locks.lock("k").acquire().await.expect("granted");
        // The terms differ, so the lease is not handed over, and the waiter is called to ask the store.
        let lock = locks.lock("k").ttl(Duration::from_secs(7));
        let mut waiter = pin!(lock.acquire());
        assert!(waiter.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        guard.release().await.expect("held");
        let ((), error) = tokio::join!(biased; locks.shutdown(), async { waiter.await.map(drop) });
        assert_eq!(error.expect_err("shut down").kind(), LockErrorKind::ShutDown);
        assert_eq!(store.acquires().count("k"), 1);
    }
}
