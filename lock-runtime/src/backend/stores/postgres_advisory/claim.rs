//! One request for a lock, and the hold that it may leave when its caller goes.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{
    names::Name,
    session::{Session, Taken},
};
use crate::{
    LockError, LockKey,
    backend::{Acquire, BoxFuture, Releasable, Released},
    time::clock::Instant,
};

/// One request for the lock. If the request is dropped before its answer, or has no answer in time, a lock that it took
/// is given back.
pub(super) struct Claim<'r> {
    request: &'r Acquire,
    session: &'r Arc<Session>,
    /// `None` once the request is answered.
    answer: Option<oneshot::Receiver<Taken>>,
}

impl<'r> Claim<'r> {
    pub(super) fn new(
        request: &'r Acquire,
        session: &'r Arc<Session>,
        name: &Name,
        wanted: Duration,
        signature: &Arc<str>,
    ) -> Self {
        let answer = Some(session.request(&request.key, name, wanted, signature));
        Self { request, session, answer }
    }

    /// Waits for the answer. Returns `None` if the session has ended.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn answered(mut self) -> Result<Option<Taken>, LockError> {
        let answer = self.answer.as_mut().expect("not answered yet");
        let taken = self.session.answer(answer).await;
        // No await follows, so the claim is not dropped between the answer and the change of its state.
        if taken.is_ok() {
            self.answer = None;
        }
        taken
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            // Without a receiver of the answer, the keeper either does not execute the request, or gives the lock back.
            drop(answer);
            let left = AbandonedRequest { key: self.request.key.clone(), session: Arc::clone(self.session) };
            // The hold ends with its session at the latest.
            self.request.cleanup.release_later(Arc::new(left), Instant::FAR_FUTURE);
        }
    }
}

/// A hold that a request without a caller may have left. The keeper gives the lock back by itself; `release` only waits
/// for the keeper.
#[derive(Debug)]
struct AbandonedRequest {
    key: LockKey,
    session: Arc<Session>,
}

impl Releasable for AbandonedRequest {
    fn key(&self) -> &LockKey {
        &self.key
    }

    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(async move {
            // The ping ends once the keeper has given back the locks that are due, or once the session has ended, which
            // frees all its locks.
            self.session.ping().await.map(|_| Released::NotHeld)
        })
    }
}
