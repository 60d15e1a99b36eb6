//! Watching who leads.

use std::{fmt, time::Duration};

use super::LockManager;
use crate::{
    LockError, LockHolder, LockKey,
    key::IntoLockKey,
    time::{
        backoff::between,
        clock::{self, Instant},
    },
};

/// Bounds on the time from one question to the store to the next.
const PACE: [Duration; 2] = [Duration::from_millis(750), Duration::from_millis(1_250)];

impl LockManager {
    /// Returns a watch that shows who [leads](crate::Lock::lead) under the lock named `key`, or who holds it in another
    /// way.
    ///
    /// Nothing is sent to the store yet. If the name is invalid, [`changed`](LeaderWatch::changed) returns an error.
    pub fn leader(&self, key: impl IntoLockKey) -> LeaderWatch {
        LeaderWatch { locks: self.clone(), key: self.key(key), seen: None, next_question: Instant::now() }
    }
}

/// Watches who holds a lock; the result of [`LockManager::leader`].
///
/// The watch only observes: use it to show the leader, or to send requests to it. It cannot tell a process that it is
/// still the leader, because the lock may have been lost since; the leader itself knows that by its
/// [`HeldLock`](crate::HeldLock), and a resource by the fencing token.
///
/// The store is asked only while [`changed`](Self::changed) is awaited: at once, and then every 0.75 to 1.25 s. Each
/// question costs what [`LockManager::inspect`] costs. A leader that leads for less time may be missed.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = lock_runtime::LockManager::connect("memory:leader").await?;
/// let guard = locks.lock("jobs").acquire().await?;
///
/// let mut watch = locks.leader("jobs");
/// let leader = watch.changed().await?.expect("the lock is held");
/// assert_eq!(leader.token(), Some(guard.fencing_token()));
///
/// guard.release().await?;
/// assert!(watch.changed().await?.is_none());
/// # Ok(())
/// # }
/// ```
#[must_use = "a watch does nothing until its changes are awaited"]
pub struct LeaderWatch {
    locks: LockManager,
    key: Result<LockKey, LockError>,
    seen: Option<Seen>,
    next_question: Instant,
}

/// What the store has shown.
struct Seen {
    leader: Option<LockHolder>,
    /// Before the question was sent.
    at: Instant,
}

impl LeaderWatch {
    /// Waits until the leader is another one than the store has shown to this watch before, and returns the new leader, or
    /// `None` if the lock is free. The first call returns as soon as the store has answered.
    ///
    /// A process that leads again after a loss is another leader: its fencing token is another one.
    ///
    /// # Errors
    /// The errors of [`LockManager::inspect`], in particular [`Unsupported`](crate::LockErrorKind::Unsupported) if the store
    /// cannot show its locks ([`Capabilities::shows_locks`](crate::backend::Capabilities::shows_locks)). The watch is not
    /// over: it keeps what it has seen, and a further call asks again, no sooner than after the usual pause.
    ///
    /// # Cancel safety
    /// Cancel safe. A further call asks no sooner than if the future had not been dropped.
    pub async fn changed(&mut self) -> Result<Option<LockHolder>, LockError> {
        loop {
            clock::sleep_until(self.next_question).await;
            let at = Instant::now();
            // Moved before the question, so that the pace also holds if the question fails or is dropped.
            self.next_question = at + between(PACE);
            let key = self.key.as_ref().map_err(Clone::clone)?;
            let state = self.locks.state_of(key).await?;
            let leader = state.holders.into_iter().next();
            let is_new =
                self.seen.as_ref().is_none_or(|seen| !is_same(seen.leader.as_ref(), leader.as_ref()));
            let seen = self.seen.insert(Seen { leader, at });
            if is_new {
                return Ok(seen.leader.clone());
            }
        }
    }

    /// Returns the leader that the store has shown last; `None` if the lock was free, or if the store has not answered yet.
    #[must_use]
    pub fn current(&self) -> Option<&LockHolder> {
        self.seen.as_ref()?.leader.as_ref()
    }

    /// Returns how long ago the store was asked for what [`current`](Self::current) returns; `None` if it has not answered
    /// yet. During an outage, and while [`changed`](Self::changed) is not awaited, the age grows.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.seen.as_ref().map(|seen| Instant::now().saturating_duration_since(seen.at))
    }
}

/// Returns whether both are the same grant. A client of another library has no token.
fn is_same(one: Option<&LockHolder>, other: Option<&LockHolder>) -> bool {
    let grant = |holder: Option<&LockHolder>| {
        holder.map(|holder| (holder.token(), holder.client().map(str::to_owned), holder.is_foreign()))
    };
    grant(one) == grant(other)
}

impl fmt::Debug for LeaderWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderWatch")
            .field("key", &self.key)
            .field("current", &self.current())
            .field("age", &self.age())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::pin,
        sync::{Arc, Mutex},
        task::{Context, Waker},
    };

    use super::*;
    use crate::{
        FencingToken, LockErrorKind,
        backend::{
            Acquire, Acquired, Backend, BoxFuture, Capabilities, LockState, Operate, Page, Revoke, Revoked,
            Scan,
        },
        mock::Mock,
        sync::lock,
    };

    const MS: Duration = Duration::from_millis(1);

    /// A store that answers what the test says, and notes when it was asked.
    #[derive(Clone, Debug, Default)]
    struct Shown(Arc<Mutex<Answers>>);

    /// The holder and the error to answer, and when the store was asked.
    type Answers = (Option<LockHolder>, Option<LockError>, Vec<Instant>);

    impl Shown {
        fn show(&self, holder: Option<LockHolder>) {
            lock(&self.0).0 = holder;
        }

        fn questions(&self) -> usize {
            lock(&self.0).2.len()
        }
    }

    impl Backend for Shown {
        fn capabilities(&self) -> Capabilities {
            Capabilities::new().showing_locks()
        }

        fn acquire(&self, _: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>> {
            unreachable!("a watch acquires nothing")
        }

        fn operate(&self) -> Option<&dyn Operate> {
            Some(self)
        }
    }

    impl Operate for Shown {
        fn inspect<'a>(&'a self, key: &'a LockKey) -> BoxFuture<'a, Result<LockState, LockError>> {
            Box::pin(async move {
                lock(&self.0).2.push(Instant::now());
                tokio::task::yield_now().await;
                let mut shown = lock(&self.0);
                if let Some(error) = shown.1.take() {
                    return Err(error);
                }
                let free = LockState::free(key.clone());
                Ok(shown.0.clone().map_or(free, |holder| LockState::held(key.clone(), holder)))
            })
        }

        fn scan<'a>(&'a self, _: &'a Scan) -> BoxFuture<'a, Result<Page, LockError>> {
            unreachable!("a watch scans nothing")
        }

        fn revoke<'a>(&'a self, _: &'a Revoke) -> BoxFuture<'a, Result<Revoked, LockError>> {
            unreachable!("a watch revokes nothing")
        }
    }

    fn holder(micros: u64) -> LockHolder {
        LockHolder::new().with_client("leader:1@host").with_token(FencingToken::from_micros(micros))
    }

    #[tokio::test]
    async fn each_leader_is_seen_once_and_a_renewal_is_no_change() {
        let store = Shown::default();
        let mut watch = LockManager::new(store.clone()).leader("k");
        assert_eq!((watch.current(), watch.age()), (None, None));
        assert_eq!(watch.changed().await.expect("an answer"), None);
        assert!(watch.age().is_some());
        store.show(Some(holder(1).with_remaining(Some(9 * MS))));
        let leader = watch.changed().await.expect("an answer");
        assert_eq!(leader.as_ref().and_then(LockHolder::token), Some(FencingToken::from_micros(1)));
        assert_eq!(watch.current(), leader.as_ref());

        store.show(Some(holder(1).with_remaining(Some(8 * MS)).revoked()));
        let asked = store.questions();
        {
            let mut changed = pin!(watch.changed());
            assert!(tokio::time::timeout(1_400 * MS, changed.as_mut()).await.is_err(), "nothing has changed");
            assert!(store.questions() > asked);
            store.show(Some(holder(2)));
            let leader = changed.await.expect("an answer");
            assert_eq!(leader.and_then(|leader| leader.token()), Some(FencingToken::from_micros(2)));
        }
        for (number, other) in
            [None, Some(LockHolder::new().foreign()), Some(LockHolder::new().with_client("a"))]
                .into_iter()
                .enumerate()
        {
            store.show(other.clone());
            assert_eq!(watch.changed().await.expect("an answer"), other, "change {number}");
        }
    }

    #[tokio::test]
    async fn an_error_is_returned_and_the_watch_goes_on_at_its_pace() {
        let store = Shown::default();
        store.show(Some(holder(1)));
        let mut watch = LockManager::new(store.clone()).leader("k");
        watch.changed().await.expect("an answer").expect("held");
        lock(&store.0).1 = Some(LockError::backend("down"));
        let error = watch.changed().await.expect_err("down");
        assert_eq!((error.kind(), error.key().map(LockKey::as_str)), (LockErrorKind::Backend, Some("k")));
        assert_eq!(watch.current(), Some(&holder(1)), "it keeps what it has seen");
        assert!(watch.age().expect("asked") >= PACE[0]);
        store.show(None);
        assert_eq!(watch.changed().await.expect("an answer"), None);
        let asked = lock(&store.0).2.clone();
        for pair in asked.windows(2) {
            let pause = pair[1].saturating_duration_since(pair[0]);
            // The store notes the time after the watch has.
            assert!(pause + 50 * MS >= PACE[0], "{pause:?}");
        }
        assert_eq!(asked.len(), 3);
    }

    #[tokio::test]
    async fn dropped_calls_do_not_ask_more_often() {
        let store = Shown::default();
        let mut watch = LockManager::new(store.clone()).leader("k");
        for _ in 0..100 {
            // The first call is dropped while the store is asked.
            let changed = pin!(watch.changed());
            assert!(changed.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        assert_eq!(store.questions(), 1);
        assert_eq!(watch.changed().await.expect("an answer"), None);
        assert_eq!(store.questions(), 2);
    }

    #[tokio::test]
    async fn a_store_that_shows_no_locks_and_a_bad_name_are_refused() {
        let locks = Mock::new().manager();
        let error = locks.leader("k").changed().await.expect_err("not shown");
        assert_eq!(error.kind(), LockErrorKind::Unsupported);
        assert!(error.to_string().contains("cannot show its locks"), "{error}");
        let error = locks.leader("").changed().await.expect_err("no name");
        assert_eq!(error.kind(), LockErrorKind::InvalidKey);
    }
}
