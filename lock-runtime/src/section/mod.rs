//! A section: what runs under locks, poll by poll, and stops when one of them is lost.

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

/// How long the result of a section waits for the store to confirm the release. After it the release goes on in the
/// background.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);

/// What happens to a body whose lock is lost before it is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLost {
    /// It is dropped at its next `.await`: before the store can give the lock to another client, if it comes to one in time
    /// and the store has not done so already.
    #[default]
    Cancel,
    /// It is finished, perhaps beside the next holder's, and its result replaced by the loss. For what must not stop
    /// half-way and checks its writes by the fencing token. A body that has not begun is not begun any more.
    Finish,
}

/// The locks of a body that is polled elsewhere. Dropped, they are released in the background.
#[derive(Debug)]
pub struct Section {
    /// In the scope while the body is polled.
    guards: Option<Guards>,
    on_lost: OnLost,
    begun: bool,
    /// Wakes the task when a lock is lost; set only for a body that waits.
    alarm: Option<SyncFuture<()>>,
}

impl Section {
    /// Under these guards.
    #[must_use]
    pub fn new(guards: Guards, on_lost: OnLost) -> Self {
        Self { guards: Some(guards), on_lost, begun: false, alarm: None }
    }

    /// The guards, outside of the scope.
    #[must_use]
    pub fn guards(&self) -> &Guards {
        self.guards.as_ref().expect(THERE)
    }

    /// Whether the body may go on. One that has not begun does not begin without the locks.
    #[must_use]
    pub fn may_go_on(&self) -> bool {
        (self.begun && self.on_lost == OnLost::Finish) || self.guards().is_valid()
    }

    /// Does what belongs to the body: it sees the holds, and does not wait for itself.
    pub fn enter<T>(&mut self, work: impl FnOnce() -> T) -> T {
        scope::enter(&mut self.guards, work)
    }

    /// Polls the body, only while it may go on. The error is the loss: the body has to be dropped before anything else is
    /// done with the section.
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

    /// Releases the locks, and waits a while for the store to confirm it.
    ///
    /// # Errors
    /// [`Lost`](LockErrorKind::Lost) when the body was not covered to its end, which is told at once, or the store knows
    /// nothing of the lock any more. That a release fails or hangs does not change what the body did: it goes on in the
    /// background.
    pub fn release(self) -> impl Future<Output = Result<(), LockError>> + Send + use<> {
        let guards = self.guards.expect(THERE);
        async move {
            tokio::select! {
                biased;
                released = guards.release() => match released {
                    Err(error) if error.kind() == LockErrorKind::Lost => return Err(error),
                    Err(error) => tracing::debug!(%error, "not known to be released after the section"),
                    Ok(()) => {}
                },
                () = clock::sleep_until(Instant::now() + RELEASE_LIMIT) => {
                    tracing::debug!("not released yet after the section, which goes on in the background");
                }
            }
            Ok(())
        }
    }
}

/// The guards are on the thread's stack only while the body is polled.
const THERE: &str = "the guards are there before and after each poll";
