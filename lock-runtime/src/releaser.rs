//! Releases in the background: what was dropped, and what may have been left in the store.

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::{
    backend::{Releasable, Released},
    clock::{self, Instant},
    underway::{Counted, Underway},
    validity::{backoff, patient_backoff},
};

/// Repeats each release until the store gives a definite answer or the lease must have ended by itself.
#[derive(Debug)]
pub(crate) struct Releaser {
    /// Made before the first release: that may come from a destructor, which must not have to start a thread.
    background: &'static Handle,
    pending: Arc<Underway>,
}

impl Releaser {
    pub(crate) fn new(background: &'static Handle) -> Arc<Self> {
        Arc::new(Self { background, pending: Arc::default() })
    }

    /// Starts a release; returns at once, from anywhere.
    pub(crate) fn release(&self, taken: Arc<dyn Releasable>, until: Instant) {
        self.release_after(Instant::now(), taken, until);
    }

    /// As [`release`](Self::release), not before `start`.
    pub(crate) fn release_after(&self, start: Instant, taken: Arc<dyn Releasable>, until: Instant) {
        let pending = Counted::new(Arc::clone(&self.pending));
        self.background.spawn(async move {
            let _pending = pending;
            clock::sleep_until(start).await;
            repeat(&*taken, until).await;
        });
    }

    /// Completes when nothing is left to release.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn drained(&self) {
        self.pending.drained().await;
    }
}

async fn repeat(taken: &dyn Releasable, until: Instant) {
    let key = taken.key();
    for attempt in 0.. {
        match taken.release().await {
            Ok(Released::Released) => return tracing::debug!(%key, "released in the background"),
            Ok(Released::NotHeld) => return tracing::debug!(%key, "nothing was left to release"),
            Err(error) if until.has_passed() => {
                return tracing::warn!(%key, %error, "not released; the lease has ended by itself");
            }
            Err(error) => tracing::debug!(%key, %error, "release failed, trying again"),
        }
        let pause = if until == Instant::FAR_FUTURE {
            backoff(attempt)
        } else {
            patient_backoff(attempt, until.remaining())
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::mock::{Mock, Reply, until};

    const MS: Duration = Duration::from_millis(1);
    const TTL: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_release_is_repeated_until_the_store_answers() {
        let store = Mock::new();
        let locks = store.manager().ttl(TTL);
        store.releases().once([Reply::Fails; 4]);
        drop(locks.lock("k").acquire().await.expect("granted"));
        locks.shutdown().await;
        assert_eq!(store.releases().count("k"), 5);
    }

    #[tokio::test]
    async fn an_answer_that_it_is_not_ours_ends_it() {
        let store = Mock::new();
        let locks = store.manager().ttl(TTL);
        store.releases().set(Reply::No);
        drop(locks.lock("k").acquire().await.expect("granted"));
        locks.shutdown().await;
        assert_eq!(store.releases().count("k"), 1);
    }

    #[tokio::test]
    async fn it_ends_when_the_lease_must_have_ended_by_itself() {
        let store = Mock::new();
        let locks = store.manager().ttl(100 * MS);
        store.releases().set(Reply::Fails);
        drop(locks.lock("k").acquire().await.expect("granted"));
        let drained = tokio::time::timeout(5000 * MS, locks.shutdown()).await;
        assert!(drained.is_ok(), "tried for ever");
        assert!(store.releases().count("k") > 1);
    }

    #[tokio::test]
    async fn a_release_that_was_not_waited_for_goes_on() {
        let store = Mock::new();
        let locks = store.manager().ttl(TTL);
        store.releases().once([Reply::Silent, Reply::Fails]);
        let guard = locks.lock("k").acquire().await.expect("granted");
        let waited = tokio::time::timeout(20 * MS, guard.release()).await;
        assert!(waited.is_err(), "the store is silent");
        locks.shutdown().await;
        assert_eq!(store.releases().count("k"), 3);
    }

    #[tokio::test]
    async fn a_grant_that_comes_too_late_to_be_of_use_is_given_back() {
        let store = Mock::new();
        let locks = store.manager().ttl(100 * MS);
        store.acquires().once([Reply::Late(95 * MS)]);
        let guard = locks.lock("k").acquire().await.expect("granted at the second attempt");
        assert_eq!(store.acquires().count("k"), 2);
        until("the first one is given back", || store.releases().count("k") == 1).await;
        assert!(guard.is_valid());
    }

    #[tokio::test]
    async fn a_silent_store_ends_the_wait() {
        let store = Mock::new();
        let locks = store.manager();
        store.acquires().set(Reply::Silent);
        let began = std::time::Instant::now();
        let error = locks.lock("k").wait(100 * MS).acquire().await.expect_err("no answer");
        assert_eq!(error.kind(), crate::LockErrorKind::Backend, "{error}");
        assert!(began.elapsed() < 3000 * MS, "{:?}", began.elapsed());
    }
}
