//! The calls of operators: who holds which lock, who waits, and how a lock is taken from its holder.

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_core::Stream;

use super::LockManager;
use crate::{
    FencingToken, LockError, LockErrorKind, LockKey,
    backend::{Backend, BoxFuture, Examination, Examined, LockState, Operate, Page, Revoke, Revoked, Scan},
    key::IntoLockKey,
    sync::SyncFuture,
};

impl LockManager {
    /// Returns who holds the lock named `key`, and who waits for it, as far as the store knows.
    ///
    /// What the store shows is what the holder's process has stated; see [`LockHolder`](crate::LockHolder). The page
    /// [stores](crate::docs::stores#what-operators-see) says what each store knows. The state may have changed before
    /// the call returns, so do not use this method to decide who may work: acquire the lock.
    ///
    /// # Errors
    /// * [`InvalidKey`](LockErrorKind::InvalidKey) if the name is invalid;
    /// * [`Unsupported`](LockErrorKind::Unsupported) if the store cannot show its locks, or in a forked child;
    /// * [`Backend`](LockErrorKind::Backend) if the store failed or did not respond.
    ///
    /// # Cancel safety
    /// Cancel safe.
    ///
    /// # Example
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// # let locks = lock_runtime::LockManager::connect("memory:").await?;
    /// let guard = locks.lock("report").label("nightly").acquire().await?;
    /// let state = locks.inspect("report").await?;
    /// assert_eq!(state.holders[0].label(), Some("nightly"));
    /// assert_eq!(state.holders[0].token(), Some(guard.fencing_token()));
    /// assert!(!locks.inspect("other").await?.is_held());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn inspect(&self, key: impl IntoLockKey) -> Result<LockState, LockError> {
        self.state_of(&self.key(key)?).await
    }

    /// Returns the state of a lock in its store.
    pub(super) async fn state_of(&self, key: &LockKey) -> Result<LockState, LockError> {
        let store = self.operated()?;
        operate(&*store)?.inspect(key).await.map_err(|error| error.with_key(key))
    }

    /// Returns the locks that are held and whose names begin with `names`, in no particular order; an empty text stands
    /// for all locks under this manager's prefix.
    ///
    /// The locks come in pages, so that the server is never busy for long with this, however many locks there are. A
    /// lock that is held during the whole scan comes at least once, perhaps twice; a lock that is acquired or released
    /// meanwhile may come or not. Locks may be missing if a server is restarted or replaced in the middle of a scan, or if
    /// their hash slots are moved from one server of a Redis Cluster to another. The page
    /// [stores](crate::docs::stores#what-operators-see) says what a scan costs, and which right it needs. Nothing is sent
    /// before the first poll.
    ///
    /// # Errors
    /// The items are errors as [`inspect`](Self::inspect) returns them, and
    /// [`Unsupported`](LockErrorKind::Unsupported) if the store lists only all locks at once, and has more than its page
    /// allows. After an error, the scan is over.
    ///
    /// # Cancel safety
    /// The scan may be dropped at any time. [`LockScan::next`] is cancel safe.
    ///
    /// # Example
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// # let locks = lock_runtime::LockManager::connect("memory:").await?;
    /// let guard = locks.lock("user:42").acquire().await?;
    /// let mut scan = locks.scan("user:");
    /// while let Some(lock) = scan.next().await {
    ///     let lock = lock?;
    ///     println!("{} is held by {:?}", lock.key, lock.holders);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(&self, names: impl Into<String>) -> LockScan {
        let scan = Scan { prefix: Arc::clone(&self.prefix), names: names.into(), from: None };
        LockScan { locks: self.clone(), found: VecDeque::new(), next: Next::Ask(scan) }
    }

    /// Takes the lock named `key` from the holder with this fencing token, without ever letting two holders believe that
    /// they have the lock. Returns false if the lock is not held with this token.
    ///
    /// `token` is any token of the grant: the first one, which [`inspect`](Self::inspect) shows, or that of a later
    /// holder in the same process to which the lock was handed over. Revoking ends the grant for all of them. The holder
    /// is notified: its guard is lost ([`HeldLock::lost`](crate::HeldLock::lost)), and code in
    /// [`run`](crate::LockGuard::run), in a `#[distributed_lock]` function or behind the layer is stopped. A live holder
    /// is gone within a round trip or two; where the store cannot notify it at once, within the time that the store's page
    /// states. A holder without
    /// [`auto_renew`](crate::Lock::auto_renew) learns nothing, because it never asks the store again: it keeps the lock
    /// until the end of its `ttl`, as it would have without the revocation.
    ///
    /// The lock is granted to another client only when the holder has released it, or when its deadline has passed: if
    /// the holder is dead or paused, this takes as long as without the revocation. Call
    /// [`revoke_by_force`](Self::revoke_by_force) to free such a lock at once.
    ///
    /// The page [stores](crate::docs::stores#revoking-a-lock) says how each store does this, and who may.
    ///
    /// # Errors
    /// * [`InvalidKey`](LockErrorKind::InvalidKey) if the name is invalid;
    /// * [`Unsupported`](LockErrorKind::Unsupported) if the store cannot revoke this lock without force, or in a forked
    ///   child;
    /// * [`Backend`](LockErrorKind::Backend) if the store failed or did not respond; the lock may be revoked all the same.
    ///   The call can be repeated.
    ///
    /// # Cancel safety
    /// Cancel safe: a request that was already sent may still be applied, and the call can be repeated.
    ///
    /// # Example
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// # let locks = lock_runtime::LockManager::connect("memory:").await?;
    /// let guard = locks.lock("report").acquire().await?;
    /// assert!(locks.revoke("report", guard.fencing_token()).await?);
    /// guard.lost().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn revoke(&self, key: impl IntoLockKey, token: FencingToken) -> Result<bool, LockError> {
        self.take(key, Some(token), false).await
    }

    /// Frees the lock named `key` at once, although its holder may still rely on it: **two clients can then work at the
    /// same time**, until the holder learns of its loss at its next renewal (without renewal, only its `ttl` ends its use).
    /// Only a resource that checks fencing tokens is safe. Use it for a holder that is known to be dead. Returns false if the lock is not held with this
    /// token.
    ///
    /// `token` is a token of the grant as for [`revoke`](Self::revoke), or `None` for a holder that has none: a client of
    /// another library ([`LockHolder::is_foreign`](crate::LockHolder::is_foreign)).
    ///
    /// # Errors
    /// As for [`revoke`](Self::revoke). If the answer of the store is lost, a repeated call may return false, because the
    /// first one has freed the lock.
    ///
    /// # Cancel safety
    /// Cancel safe: a request that was already sent may still be applied.
    pub async fn revoke_by_force(
        &self,
        key: impl IntoLockKey,
        token: impl Into<Option<FencingToken>>,
    ) -> Result<bool, LockError> {
        self.take(key, token.into(), true).await
    }

    /// Examines the servers of the store: what they report of themselves, and what would bite the users of locks with
    /// this `ttl`, each with its remedy. (In a store with sessions, the session timeout counts instead.) The page [`distlock`](crate::docs::distlock#distlock-doctor) has the meanings of the
    /// findings; `distlock doctor` also tries whether the locks exclude each other.
    ///
    /// The call connects to each server, asks for settings and figures, and measures the round trips of some calls. It
    /// changes nothing, apart from what each new connection may create (a table, if the URL says so; ZooKeeper's root nodes). A question that the user may not ask is a finding, too. The examination takes as long as the servers
    /// take to answer, within the time limits of the store for each call.
    ///
    /// # Errors
    /// * [`Unsupported`](LockErrorKind::Unsupported) if the store has no part for operators, or in a forked child;
    /// * as from [`ping`](Self::ping) if the store cannot be used at all. [`LockError::fault`] names the reason, if it is a
    ///   known fault of the configuration.
    ///
    /// # Cancel safety
    /// Cancel safe.
    ///
    /// # Example
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// # let locks = lock_runtime::LockManager::connect("memory:").await?;
    /// let examined = locks.examine(std::time::Duration::from_secs(30)).await?;
    /// for finding in &examined.findings {
    ///     println!("{finding}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn examine(&self, ttl: Duration) -> Result<Examined, LockError> {
        let store = self.operated()?;
        // A session lasts as long for each of its locks.
        let session = store.capabilities().session_timeout();
        let (limit, ttl) = session.map_or(("ttl", ttl), |timeout| ("session_timeout", timeout));
        let examination = Examination::new(Arc::clone(&self.prefix), ttl);
        let mut examined = operate(&*store)?.examine(&examination).await?;
        examined.judge(limit, ttl);
        Ok(examined)
    }

    async fn take(
        &self,
        key: impl IntoLockKey,
        token: Option<FencingToken>,
        is_forced: bool,
    ) -> Result<bool, LockError> {
        let revoke = Revoke { key: self.key(key)?, token, is_forced };
        let store = self.operated()?;
        let revoked = operate(&*store)?.revoke(&revoke).await.map_err(|error| error.with_key(&revoke.key));
        let (key, token) = (&revoke.key, token.map(FencingToken::get));
        match revoked {
            Ok(revoked) => {
                let is_revoked = revoked == Revoked::Revoked;
                tracing::warn!(%key, token, is_forced, is_revoked, "an operator revokes a lock");
                Ok(is_revoked)
            }
            // The request may have been carried out.
            Err(error) => {
                tracing::warn!(%key, token, is_forced, %error, "an operator tries to revoke a lock");
                Err(error)
            }
        }
    }

    /// Returns the store, if this process may ask it.
    fn operated(&self) -> Result<Arc<dyn Backend>, LockError> {
        self.check_usable()?;
        Ok(Arc::clone(&self.engine.backend))
    }
}

fn operate(store: &dyn Backend) -> Result<&dyn Operate, LockError> {
    let missing = || {
        let message = "this store cannot show its locks or revoke them (`Backend::operate`)";
        LockError::new(LockErrorKind::Unsupported, message)
    };
    store.operate().ok_or_else(missing)
}

/// The held locks of a store, page by page; the result of [`LockManager::scan`].
///
/// It is a [`Stream`], and has the method [`next`](Self::next) for programs without a crate of stream combinators.
#[must_use = "a scan does nothing until it is polled"]
pub struct LockScan {
    locks: LockManager,
    found: VecDeque<LockState>,
    next: Next,
}

/// How a scan goes on after the locks that it has found.
enum Next {
    Ask(Scan),
    Answer(SyncFuture<Result<(Page, Scan), LockError>>),
    Over,
}

impl LockScan {
    /// Returns the next lock, or `None` after the last one.
    ///
    /// # Errors
    /// See [`LockManager::scan`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<Result<LockState, LockError>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for LockScan {
    type Item = Result<LockState, LockError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(lock) = self.found.pop_front() {
                return Poll::Ready(Some(Ok(lock)));
            }
            match &mut self.next {
                Next::Over => return Poll::Ready(None),
                Next::Ask(scan) => {
                    let scan = scan.clone();
                    match self.locks.operated() {
                        Ok(store) => self.next = Next::Answer(SyncFuture::new(page(store, scan))),
                        Err(error) => {
                            self.next = Next::Over;
                            return Poll::Ready(Some(Err(error)));
                        }
                    }
                }
                Next::Answer(answer) => match ready!(answer.poll(cx)) {
                    Ok((Page { locks, next }, scan)) => {
                        self.found = locks.into();
                        self.next = match next {
                            Some(from) => Next::Ask(Scan { from: Some(from), ..scan }),
                            None => Next::Over,
                        };
                    }
                    Err(error) => {
                        self.next = Next::Over;
                        return Poll::Ready(Some(Err(error)));
                    }
                },
            }
        }
    }
}

/// Asks the store for a page; returns the question, too.
fn page(store: Arc<dyn Backend>, scan: Scan) -> BoxFuture<'static, Result<(Page, Scan), LockError>> {
    Box::pin(async move {
        let page = operate(&*store)?.scan(&scan).await?;
        Ok((page, scan))
    })
}

impl fmt::Debug for LockScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockScan")
    }
}
