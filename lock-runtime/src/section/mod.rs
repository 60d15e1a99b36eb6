//! A section: code that runs under locks, poll by poll, and stops when one of them is lost.

pub(crate) mod run;
pub(crate) mod scope;

pub use self::{
    run::Run,
    scope::{current, ensure_locked},
};

use std::{
    future::Future,
    task::{Context, Poll, ready},
    time::Duration,
};

use crate::{
    LockError, LockErrorKind,
    guard::set::Guards,
    sync::SyncFuture,
    time::clock::{self, Instant},
};

/// How long the result of a section waits for the store to confirm the release. After that, the release goes on in the
/// background.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);

/// What happens to a body whose lock is lost before it is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLost {
    /// The body is dropped at its next `.await`. This is before the store can give the lock to another client, if the
    /// body reaches an `.await` in time and the store has not given the lock away already.
    #[default]
    Cancel,
    /// The body is finished, perhaps while the next holder's runs, and its result is replaced by the loss. For work
    /// that must not stop half-way and whose writes are checked by the fencing token. A body that has not begun never
    /// begins.
    Finish,
}

/// The locks of a body, which the section's owner polls. Dropping the section releases them in the background.
#[derive(Debug)]
pub struct Section {
    /// `None` while the body is polled: the guards are in the scope then.
    guards: Option<Guards>,
    on_lost: OnLost,
    begun: bool,
    /// Wakes the task when a lock is lost; set only for a pending body.
    alarm: Option<SyncFuture<()>>,
}

impl Section {
    /// Creates a section under these guards.
    #[must_use]
    pub fn new(guards: Guards, on_lost: OnLost) -> Self {
        Self { guards: Some(guards), on_lost, begun: false, alarm: None }
    }

    /// Returns the guards, outside of a poll of the body.
    #[must_use]
    pub fn guards(&self) -> &Guards {
        self.guards.as_ref().expect(THERE)
    }

    /// Returns whether the body may go on. A body that has not begun does not begin without the locks.
    #[must_use]
    pub fn may_go_on(&self) -> bool {
        (self.begun && self.on_lost == OnLost::Finish) || self.guards().is_valid()
    }

    /// Runs `work` as a part of the body: it sees the holds, and does not wait for itself.
    pub fn enter<T>(&mut self, work: impl FnOnce() -> T) -> T {
        scope::enter(&mut self.guards, work)
    }

    /// Polls the body if it may go on.
    ///
    /// The error is the loss: the caller has to drop the body before it does anything else with the section.
    pub fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        body: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, LockError>> {
        if !self.may_go_on() {
            return Poll::Ready(Err(self.guards().loss()));
        }
        self.begun = true;
        if let Poll::Ready(output) = self.enter(|| body(cx)) {
            return Poll::Ready(Ok(output));
        }
        if self.on_lost == OnLost::Finish {
            return Poll::Pending;
        }
        let guards = self.guards.as_ref().expect(THERE);
        ready!(self.alarm.get_or_insert_with(|| SyncFuture::new(guards.lost())).poll(cx));
        self.alarm = None;
        Poll::Ready(Err(self.guards().loss()))
    }

    /// Releases the locks, and waits at most two seconds for the store to confirm it.
    ///
    /// # Errors
    /// [`Lost`](LockErrorKind::Lost) if the body was not covered to its end, which is reported at once, or if the store
    /// no longer knows the lock. A release that fails or hangs is no error, because it does not change the body's work;
    /// it goes on in the background.
    pub fn release(self) -> impl Future<Output = Result<(), LockError>> + Send + use<> {
        let guards = self.guards.expect(THERE);
        async move {
            tokio::select! {
                biased;
                released = guards.release() => match released {
                    Err(error) if error.kind() == LockErrorKind::Lost => return Err(error),
                    Err(error) => tracing::debug!(%error, "the release after the section was not confirmed"),
                    Ok(()) => {}
                },
                () = clock::sleep_until(Instant::now() + RELEASE_LIMIT) => {
                    tracing::debug!("the release after the section is not confirmed yet and goes on in the background");
                }
            }
            Ok(())
        }
    }
}

/// The guards are on the scope's stack only while the body is polled.
const THERE: &str = "the guards are there before and after each poll";
