//! A section: code that is polled under locks, and stops when one of them is lost.

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

use tracing::Span;

use self::scope::Inside;
use crate::{
    LockError, LockErrorKind,
    guard::set::Guards,
    sync::SyncFuture,
    time::clock::{self, Instant},
};

/// How long a section waits for the store to confirm the release before the section returns its result. After that
/// time, the release continues in the background.
const RELEASE_LIMIT: Duration = Duration::from_secs(2);

/// What happens to the body (the code that runs under the lock) if the lock is lost before the body has completed.
///
/// For `#[distributed_lock]`, "body" means the function body, and the `on_lost` option selects one of these variants.
/// For lock-tower's `LockLayer`, "body" means the inner service's future and the response body, and
/// `LockLayer::on_lost` selects the variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLost {
    /// When the lock is lost, the body is dropped: immediately if it is suspended at an `.await`, or else at the next
    /// `.await` that suspends it. Normally, the body is dropped before the store can grant the lock to another client.
    /// The body is dropped too late if it does not reach an `.await` in time, or if the store has already granted the
    /// lock to another client, for example after a failover that lost data.
    #[default]
    Cancel,
    /// The body runs to completion, possibly at the same time as the body of the next holder. The result of the body is
    /// then replaced by an error of kind [`Lost`](LockErrorKind::Lost), unless the body itself returned an error. If
    /// the lock is lost before the body has started, the body does not run.
    ///
    /// With `LockLayer`, any response, even one with an error status, is replaced by a 500 response (in gRPC,
    /// `ABORTED`); a response that is already being streamed is aborted instead. The one exception: if the inner
    /// service's future resolves to `Err`, that error is passed on unchanged.
    ///
    /// Use this variant for work that must not stop half-way and whose writes are protected by the fencing token.
    Finish,
}

/// The locks under which the owner of this section polls a body. Dropping the section releases the locks in the
/// background.
#[derive(Debug)]
pub struct Section {
    /// `None` while the body is polled, because the guards are then in the scope.
    guards: Option<Guards>,
    on_lost: OnLost,
    begun: bool,
    /// The span of the body; `None` unless a subscriber wants the span.
    span: Option<Box<SectionSpan>>,
    /// Wakes the task when a lock is lost. Set only while the body is pending.
    alarm: Option<SyncFuture<()>>,
}

impl Section {
    /// Creates a section under these guards.
    #[must_use]
    pub fn new(guards: Guards, on_lost: OnLost) -> Self {
        let span = guards.span().map(|span| Box::new(SectionSpan { span, began: Instant::now() }));
        Self { guards: Some(guards), on_lost, begun: false, span, alarm: None }
    }

    /// Returns the guards. Must not be called while the body is polled.
    #[must_use]
    pub fn guards(&self) -> &Guards {
        self.guards.as_ref().expect(GUARDS_PRESENT)
    }

    /// Returns whether the body may continue. A body that has not started does not start without the locks.
    #[must_use]
    pub fn may_go_on(&self) -> bool {
        (self.begun && self.on_lost == OnLost::Finish) || self.guards().is_valid()
    }

    /// Runs `work` as a part of the body, under the locks: in `work`, [`current`] returns the lock, and acquiring the
    /// lock again does not wait.
    pub fn enter<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let _entered = self.span.as_deref().map(|span| span.span.enter());
        let _inside = Inside::enter(&mut self.guards);
        work()
    }

    /// Polls the body if it may continue.
    ///
    /// If this method returns an error, a lock was lost, and the caller has to drop the body before it does anything
    /// else with the section.
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
        let guards = self.guards.as_ref().expect(GUARDS_PRESENT);
        ready!(self.alarm.get_or_insert_with(|| SyncFuture::new(guards.lost())).poll(cx));
        self.alarm = None;
        Poll::Ready(Err(self.guards().loss()))
    }

    /// Releases the locks, and waits up to two seconds for the store to confirm the release.
    ///
    /// # Errors
    /// [`Lost`](LockErrorKind::Lost) if one of the locks was lost before the body completed (reported at once), or if
    /// the store no longer considers one of the locks held. If the release fails or hangs, no error is returned,
    /// because the body's work is not affected; the release continues in the background.
    pub fn release(self) -> impl Future<Output = Result<(), LockError>> + Send + use<> {
        let mut guards = self.guards.expect(GUARDS_PRESENT);
        async move {
            tokio::select! {
                biased;
                released = guards.leave() => match released {
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

/// The span of a section that began at this moment. Dropped, the span states for how long the section lasted.
#[derive(Debug)]
struct SectionSpan {
    span: Span,
    began: Instant,
}

impl Drop for SectionSpan {
    fn drop(&mut self) {
        self.span.record("lock.held", Instant::now().saturating_duration_since(self.began).as_secs_f64());
    }
}

/// The message for missing guards, which are on the stack of the scope only while the body is polled.
const GUARDS_PRESENT: &str = "the guards are there before and after each poll";
