//! A body that runs under a lock and stops when the lock is lost.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use crate::{LockError, LockGuard, backend::BoxFuture, clock::Instant};

pin_project! {
    /// What [`LockGuard::run`] returns.
    #[must_use = "futures do nothing unless awaited"]
    pub struct Run<F: Future> {
        #[pin]
        raced: Raced<F>,
    }
}

impl<F: Future> Run<F> {
    pub(crate) fn new(guard: LockGuard, body: F) -> Self {
        Self { raced: Raced::new(guard, body) }
    }
}

impl<F: Future> Future for Run<F> {
    type Output = Result<F::Output, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(self.project().raced.poll(cx)) {
            Outcome::InTime(output) => Ok(output),
            Outcome::Late(_, loss) | Outcome::Dropped(loss) => Err(loss),
        })
    }
}

impl<F: Future> fmt::Debug for Run<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").finish_non_exhaustive()
    }
}

/// How a body ended.
pub(crate) enum Outcome<T> {
    /// Ready inside the safe deadline.
    InTime(T),
    /// Ready, but the deadline had passed by then.
    Late(T, LockError),
    /// Dropped at the deadline.
    Dropped(LockError),
}

pin_project! {
    /// Polls the body first only while the lock is valid, drops it when it is not, and releases the lock.
    #[project = RacedProj]
    pub(crate) struct Raced<F: Future> {
        // Declared before the guard: dropped, the body goes first.
        #[pin]
        body: Option<F>,
        guard: Option<LockGuard>,
        lost: Option<BoxFuture<'static, ()>>,
        release: Option<BoxFuture<'static, ()>>,
        outcome: Option<Outcome<F::Output>>,
    }
}

impl<F: Future> Raced<F> {
    pub(crate) fn new(guard: LockGuard, body: F) -> Self {
        Self { body: Some(body), guard: Some(guard), lost: None, release: None, outcome: None }
    }
}

impl<F: Future> Future for Raced<F> {
    type Output = Outcome<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(guard) = this.guard.as_ref() {
            let outcome = ready!(race(this.body.as_mut(), guard, this.lost, cx));
            // The body goes before the lock: whatever it still holds is dropped under it.
            this.body.set(None);
            *this.lost = None;
            *this.outcome = Some(outcome);
            let guard = this.guard.take().expect("looked at above");
            *this.release = Some(Box::pin(async move {
                // A release that fails is not the body's failure; it was logged, and goes on in the background.
                if let Err(error) = guard.release().await {
                    tracing::debug!(%error, "released after the section");
                }
            }));
        }
        if let Some(release) = this.release {
            ready!(release.as_mut().poll(cx));
        }
        *this.release = None;
        Poll::Ready(this.outcome.take().expect("not polled again after it was ready"))
    }
}

/// One poll of the body, if the lock is still valid.
fn race<F: Future>(
    mut body: Pin<&mut Option<F>>,
    guard: &LockGuard,
    lost: &mut Option<BoxFuture<'static, ()>>,
    cx: &mut Context<'_>,
) -> Poll<Outcome<F::Output>> {
    if !guard.turn().is_valid(Instant::now()) {
        // Dropped here, before anything else is done with the lock.
        body.set(None);
        return Poll::Ready(Outcome::Dropped(guard.loss()));
    }
    if let Some(running) = body.as_mut().as_pin_mut()
        && let Poll::Ready(output) = running.poll(cx)
    {
        return Poll::Ready(if guard.turn().is_valid(Instant::now()) {
            Outcome::InTime(output)
        } else {
            Outcome::Late(output, guard.loss())
        });
    }
    // The alarm is set only for a body that waits.
    let lost = lost.get_or_insert_with(|| Box::pin(guard.lost()));
    ready!(lost.as_mut().poll(cx));
    body.set(None);
    Poll::Ready(Outcome::Dropped(guard.loss()))
}
