//! A body that runs under a lock and stops when the lock is lost.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

use crate::{
    LockError, LockGuard, MultiGuard,
    backend::BoxFuture,
    guard::set::Guards,
    section::{OnLost, Section},
};

pin_project! {
    /// The future returned by [`LockGuard::run`] and [`MultiGuard::run`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct Run<F: Future> {
        #[pin]
        raced: Raced<F>,
    }
}

impl LockGuard {
    /// Runs `body` under the lock, drops it if the lock is lost, and releases the lock.
    ///
    /// If the body completes before the lock is known to be lost, `run` returns the body's result, even if the release
    /// then fails or reveals that the store had already lost the lock. (A warning is logged in the latter case.) Before
    /// it returns the result, `run` waits up to two seconds for the store to confirm the release; after that, the
    /// release continues in the background. If the lock is lost before the body completes, `run` returns the error at
    /// once.
    ///
    /// # Errors
    /// [`Lost`](crate::LockErrorKind::Lost) if the lock was lost before the body completed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the body is dropped, and then the lock is released in the background.
    ///
    /// # Example
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_runtime::LockError> {
    /// # let locks = lock_runtime::LockManager::connect("memory:").await?;
    /// let guard = locks.lock("user:42").acquire().await?;
    /// let sum = guard.run(async { 1 + 1 }).await?;
    /// assert_eq!(sum, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn run<F: Future>(self, body: F) -> Run<F> {
        Run::new(self.into(), body)
    }
}

impl MultiGuard {
    /// Runs `body` under the locks, drops it if one of the locks is lost, and releases the locks. See
    /// [`LockGuard::run`] for the details.
    ///
    /// # Errors
    /// [`Lost`](crate::LockErrorKind::Lost) if one of the locks was lost before the body completed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the body is dropped, and then the locks are released in the background.
    pub fn run<F: Future>(self, body: F) -> Run<F> {
        Run::new(self.into(), body)
    }
}

impl<F: Future> Run<F> {
    pub(crate) fn new(guards: Guards, body: F) -> Self {
        Self { raced: Raced::new(guards, body, OnLost::Cancel) }
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
#[derive(Debug)]
pub enum Outcome<T> {
    /// The body completed while the lock was held.
    InTime(T),
    /// The body completed, but the lock had been lost by then.
    Late(T, LockError),
    /// The body was dropped because the lock was lost.
    Dropped(LockError),
}

pin_project! {
    /// A body that is polled as a section under its locks, and the release of the locks after the body.
    ///
    /// A struct, because an `async fn` would reserve space for the body twice.
    #[must_use = "futures do nothing unless awaited"]
    pub struct Raced<F: Future> {
        // Declared before the section, so that the body is dropped first.
        #[pin]
        body: Option<F>,
        section: Option<Section>,
        release: Option<BoxFuture<'static, Result<(), LockError>>>,
        outcome: Option<Outcome<F::Output>>,
    }
}

impl<F: Future> Raced<F> {
    pub(crate) fn new(guards: Guards, body: F, on_lost: OnLost) -> Self {
        Self { body: Some(body), section: Some(Section::new(guards, on_lost)), release: None, outcome: None }
    }
}

impl<F: Future> Future for Raced<F> {
    type Output = Outcome<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let (Some(section), Some(body)) = (&mut *this.section, this.body.as_mut().as_pin_mut()) {
            let polled = ready!(section.poll(cx, |cx| body.poll(cx)));
            let outcome = match polled {
                Ok(output) if section.guards().is_valid() => Outcome::InTime(output),
                Ok(output) => Outcome::Late(output, section.guards().loss()),
                Err(loss) => Outcome::Dropped(loss),
            };
            // The body is dropped before the release, so that the values it still owns are dropped under the lock.
            this.body.set(None);
            *this.outcome = Some(outcome);
        }
        if let Some(section) = this.section.take() {
            *this.release = Some(Box::pin(section.release()));
        }
        if let Some(release) = this.release {
            // The outcome is decided already. If the release shows that the store had granted the lock to another
            // client, only the log says so.
            drop(ready!(release.as_mut().poll(cx)));
        }
        *this.release = None;
        Poll::Ready(this.outcome.take().expect("not polled again after it was ready"))
    }
}

impl<F: Future> fmt::Debug for Raced<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Raced").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        future::{pending, poll_fn},
        pin::pin,
        rc::Rc,
        task::Waker,
        time::Duration,
    };

    use super::*;
    use crate::{
        LockErrorKind,
        macro_support::Kept,
        mock::{Mock, Reply, until},
    };

    const MS: Duration = Duration::from_millis(1);

    /// Returns a guard with a near deadline, which is never moved.
    async fn short(store: &Mock) -> LockGuard {
        store.manager().lock("k").ttl(100 * MS).auto_renew(false).acquire().await.expect("granted")
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn a_body_is_not_polled_after_the_deadline_although_it_is_ready() {
        let store = Mock::new();
        let polls = Rc::new(Cell::new(0));
        let body = {
            let polls = Rc::clone(&polls);
            poll_fn(move |_| {
                polls.set(polls.get() + 1);
                if polls.get() == 1 { Poll::Pending } else { Poll::Ready(()) }
            })
        };
        let mut run = Box::pin(short(&store).await.run(body));
        assert!(poll(run.as_mut()).is_pending());
        // Like a suspended process, the blocked thread runs no code that could report the loss.
        std::thread::sleep(150 * MS);
        let error = run.await.expect_err("lost");
        assert_eq!(error.kind(), LockErrorKind::Lost);
        assert_eq!(polls.get(), 1, "the body ran on under a lock that another client may hold");
    }

    #[tokio::test]
    async fn a_body_that_comes_to_its_end_too_late_does_not_count() {
        let store = Mock::new();
        let guard = short(&store).await;
        let error = guard.run(async { std::thread::sleep(150 * MS) }).await.expect_err("lost");
        assert_eq!(error.kind(), LockErrorKind::Lost);
    }

    #[tokio::test]
    async fn a_body_that_is_to_be_finished_runs_to_its_end_and_its_result_is_replaced_by_the_loss() {
        let store = Mock::new();
        let ended = Rc::new(Cell::new(false));
        let body = {
            let ended = Rc::clone(&ended);
            async move {
                tokio::time::sleep(250 * MS).await;
                ended.set(true);
                Ok::<_, LockError>(())
            }
        };
        let run = crate::__private::run(short(&store).await, body, OnLost::Finish);
        assert_eq!(run.await.kept().expect_err("lost").kind(), LockErrorKind::Lost);
        assert!(ended.get(), "cancelled");
    }

    #[tokio::test]
    async fn a_body_that_is_to_be_finished_does_not_begin_without_the_lock() {
        let store = Mock::new();
        let guard = short(&store).await;
        let begun = Cell::new(false);
        let run = crate::__private::run(guard, async { begun.set(true) }, OnLost::Finish);
        std::thread::sleep(150 * MS);
        assert_eq!(run.await.kept().expect_err("lost").kind(), LockErrorKind::Lost);
        assert!(!begun.get(), "begun without the lock");
    }

    #[tokio::test]
    async fn a_body_keeps_its_result_although_its_release_fails() {
        let store = Mock::new();
        let locks = store.manager();
        for reply in [Reply::Fails, Reply::No] {
            store.releases().once([reply]);
            let guard = locks.lock("k").acquire().await.expect("granted");
            assert_eq!(guard.run(async { 7 }).await.expect("in time"), 7);
        }
        locks.shutdown().await;
    }

    #[tokio::test]
    async fn a_release_that_is_not_answered_goes_on_without_the_section() {
        let store = Mock::new();
        let locks = store.manager();
        for several in [false, true] {
            let guards: Guards = if several {
                locks.all(["k", "l"]).acquire().await.expect("granted").into()
            } else {
                locks.lock("k").acquire().await.expect("granted").into()
            };
            store.releases().once([Reply::Silent].repeat(guards.locks().len()));
            let run = tokio::time::timeout(10_000 * MS, Run::new(guards, async { 7 }));
            assert_eq!(run.await.expect("it does not wait forever").expect("in time"), 7);
            locks.engine().releaser.drained().await;
        }
        assert_eq!((store.releases().count("k"), store.releases().count("l")), (4, 2));
    }

    #[tokio::test]
    async fn a_loss_is_told_at_once_and_the_release_goes_on_without_it() {
        fn kind<T>(what: &str, told: Poll<Result<T, LockError>>) -> LockErrorKind {
            match told {
                Poll::Ready(Err(error)) => error.kind(),
                Poll::Ready(Ok(_)) => panic!("{what}: not lost"),
                Poll::Pending => panic!("{what}: the loss waits for a store that is silent"),
            }
        }
        let store = Mock::new();
        store.releases().set(Reply::Silent);
        let mut cancelled = Box::pin(short(&store).await.run(pending::<()>()));
        let late =
            pin!(crate::__private::run(short(&store).await, poll_fn(|_| Poll::Ready(())), OnLost::Finish));
        let several = store.manager().all(["k", "l"]).ttl(100 * MS).auto_renew(false).acquire().await;
        let (one, several) = (short(&store).await, several.expect("granted"));
        assert!(poll(cancelled.as_mut()).is_pending());
        std::thread::sleep(150 * MS);
        assert_eq!(kind("a body that is cancelled", poll(cancelled.as_mut())), LockErrorKind::Lost);
        assert_eq!(kind("a body that is late", poll(late).map(Kept::kept)), LockErrorKind::Lost);
        assert_eq!(kind("a guard", poll(pin!(one.release()))), LockErrorKind::Lost);
        assert_eq!(kind("several guards", poll(pin!(several.release()))), LockErrorKind::Lost);
        until("the releases are sent", || {
            (store.releases().count("k"), store.releases().count("l")) == (4, 1)
        })
        .await;
    }

    #[tokio::test]
    async fn the_body_goes_before_the_lock() {
        struct Last(Rc<Cell<usize>>, Mock);
        impl Drop for Last {
            fn drop(&mut self) {
                self.0.set(self.1.releases().count("k"));
            }
        }
        let store = Mock::new();
        let released_before = Rc::new(Cell::new(usize::MAX));
        let last = Last(Rc::clone(&released_before), store.clone());
        let mut run = Box::pin(short(&store).await.run(async move {
            let _last = last;
            pending::<()>().await;
        }));
        while poll(run.as_mut()).is_pending() {
            tokio::time::sleep(1 * MS).await;
        }
        until("it is released", || store.releases().count("k") == 1).await;
        drop(run);
        assert_eq!(released_before.get(), 0);
    }
}
