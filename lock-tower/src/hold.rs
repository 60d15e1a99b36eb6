//! The locks of one request: watched while the request is worked on, then released.

use std::task::{Context, Poll, ready};

use http::Extensions;
use lock_runtime::{
    __private::{Guards, RELEASE_LIMIT, Scope},
    LockError, LockErrorKind,
};

use crate::{OnLost, task::Task};

/// One lock or several that are held for a request. Dropped, they are released in the background.
pub(crate) struct Hold {
    scope: Scope,
    on_lost: OnLost,
    begun: bool,
    /// Wakes the task when a lock is lost; set only for what has to wait.
    alarm: Option<Task<()>>,
}

impl Hold {
    pub(crate) fn new(guards: Guards, on_lost: OnLost) -> Self {
        Self { scope: Scope::of(guards), on_lost, begun: false, alarm: None }
    }

    /// Puts a view of it where the inner service finds it.
    pub(crate) fn show(&self, extensions: &mut Extensions) {
        match self.scope.guards() {
            Guards::One(guard) => drop(extensions.insert(guard.held())),
            Guards::Several(guard) => drop(extensions.insert(guard.held())),
        }
    }

    /// Whether what runs under the lock may go on. What has not begun does not begin without it.
    pub(crate) fn may_go_on(&self) -> bool {
        (self.begun && self.on_lost == OnLost::Finish) || self.scope.guards().is_valid()
    }

    /// Does what is done under the lock: it sees the hold, and does not wait for itself.
    pub(crate) fn enter<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.scope.enter(work)
    }

    /// Polls what runs under the lock, only while it may go on. The error says that it may not, and that what runs
    /// under the lock must be dropped.
    pub(crate) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        work: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, LockError>> {
        if !self.may_go_on() {
            return Poll::Ready(Err(self.scope.guards().loss()));
        }
        self.begun = true;
        if let Poll::Ready(output) = self.enter(|| work(cx)) {
            return Poll::Ready(Ok(output));
        }
        if self.on_lost == OnLost::Finish {
            return Poll::Pending;
        }
        let guards = self.scope.guards();
        let alarm = self.alarm.get_or_insert_with(|| Task::new(guards.lost()));
        ready!(alarm.poll(cx));
        self.alarm = None;
        Poll::Ready(Err(guards.loss()))
    }

    /// Releases what is held; [`Lost`](LockErrorKind::Lost) when the work was not covered to this moment, which is told at
    /// once, or the store knows nothing of the lock any more.
    pub(crate) fn release(self) -> Task<Result<(), LockError>> {
        let guards = self.scope.into_guards();
        Task::new(async move {
            match tokio::time::timeout(RELEASE_LIMIT, guards.release()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) if error.kind() == LockErrorKind::Lost => return Err(error),
                // The work is done and was covered; that the lock is free a little later does not change its result.
                Ok(Err(error)) => tracing::warn!(%error, "the lock of a request may still be held"),
                Err(_) => tracing::warn!(
                    "the lock of a request is not released yet, which goes on in the background"
                ),
            }
            Ok(())
        })
    }
}
