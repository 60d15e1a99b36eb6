//! One request for a lock, and what it may leave if its caller goes.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    names::Name,
    session::{Failure, Session, Taken},
};
use crate::{
    LockError, LockKey,
    backend::{Acquire, BoxFuture, Releasable, Released},
    time::clock::Instant,
};

/// One request for the lock. If it is dropped before its answer, or has none in time, what it took is given back.
pub(super) struct Claim<'r> {
    request: &'r Acquire,
    session: &'r Arc<Session>,
    abandoned: Arc<AtomicBool>,
    /// `None` once it is answered.
    answer: Option<oneshot::Receiver<Taken>>,
}

impl<'r> Claim<'r> {
    pub(super) fn new(
        request: &'r Acquire,
        session: &'r Arc<Session>,
        name: &Name,
        wanted: Duration,
    ) -> Self {
        let abandoned = Arc::default();
        let answer = Some(session.request(&request.key, name, wanted, &abandoned));
        Self { request, session, abandoned, answer }
    }

    /// Waits for the answer.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn answered(mut self) -> Result<Taken, Failure> {
        let answer = self.answer.as_mut().expect("not answered yet");
        let taken = self.session.answer(answer).await;
        // From here on there is no await.
        if !matches!(taken, Err(Failure::Failed(_))) {
            self.answer = None;
        }
        taken
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            self.abandoned.store(true, Ordering::SeqCst);
            // A hold that is not received is given back before the keeper takes any other lock.
            drop(answer);
            let left = Left { key: self.request.key.clone(), session: Arc::clone(self.session) };
            // It ends with its session at the latest.
            self.request.cleanup.release_later(Arc::new(left), Instant::FAR_FUTURE);
        }
    }
}

/// What a request without a caller may have left. The keeper gives it back by itself; here it is waited for.
struct Left {
    key: LockKey,
    session: Arc<Session>,
}

impl Releasable for Left {
    fn key(&self) -> &LockKey {
        &self.key
    }

    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(async move {
            match self.session.ping().await {
                // The keeper answers after it has given back what is to be given back.
                Ok(()) | Err(Failure::Ended(_)) => Ok(Released::NotHeld),
                Err(Failure::Failed(error)) => Err(error),
            }
        })
    }
}

impl fmt::Debug for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Left").field("key", &self.key).field("session", &self.session).finish_non_exhaustive()
    }
}
