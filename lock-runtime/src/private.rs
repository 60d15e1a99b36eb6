//! What the attribute's expansion and the layer call; not for anybody else, and without promises.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;

use crate::{
    LockError, LockErrorKind, LockGuard, LockManager, global,
    run::{Outcome, Raced},
};
#[path = "duration.rs"]
pub mod duration;
#[path = "template.rs"]
pub mod template;

pub use crate::{
    answer::{Answer, Code, log},
    key_parts::{KeyParts, KeyValue},
    options::WaitFor as Wait,
};

/// The options that were written; the manager's defaults fill in the others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// `ttl = …`
    pub ttl: Option<Duration>,
    /// `wait = …`
    pub wait: Option<Wait>,
    /// `auto_renew = …`
    pub auto_renew: Option<bool>,
}

/// What `manager = …` may name.
#[diagnostic::on_unimplemented(
    message = "`manager` must be a `LockManager`, or a reference or an `Arc` of one, not `{Self}`",
    label = "not a `LockManager`"
)]
pub trait AsLockManager {
    /// The manager.
    fn as_lock_manager(&self) -> &LockManager;
}

impl AsLockManager for LockManager {
    fn as_lock_manager(&self) -> &LockManager {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<M: AsLockManager + ?Sized> AsLockManager for &M {
    fn as_lock_manager(&self) -> &LockManager {
        (**self).as_lock_manager()
    }
}

#[diagnostic::do_not_recommend]
impl<M: AsLockManager + ?Sized> AsLockManager for Arc<M> {
    fn as_lock_manager(&self) -> &LockManager {
        (**self).as_lock_manager()
    }
}

/// The manager that `manager = …` names.
pub fn manager<M: AsLockManager + ?Sized>(manager: &M) -> Result<LockManager, LockError> {
    Ok(manager.as_lock_manager().clone())
}

/// The manager where none is named.
pub fn default_manager() -> Result<LockManager, LockError> {
    global::current_manager().ok_or_else(|| {
        LockError::new(
            LockErrorKind::NoManager,
            "no lock manager: write `manager = …` in the attribute, or call `lock_runtime::set_global` at start",
        )
    })
}

/// Acquires the lock; borrows nothing, so that nothing of the user's is held across the wait.
pub fn acquire(
    manager: Result<LockManager, LockError>,
    key: KeyParts,
    options: Options,
) -> impl Future<Output = Result<LockGuard, LockError>> + Send + use<> {
    let name = key.finish().map_err(|empty| LockError::new(LockErrorKind::InvalidKey, empty.to_string()));
    let lock = name.and_then(|name| {
        let mut lock = manager?.lock(name);
        if let Some(ttl) = options.ttl {
            lock = lock.ttl(ttl);
        }
        if let Some(auto_renew) = options.auto_renew {
            lock = lock.auto_renew(auto_renew);
        }
        Ok(match options.wait {
            Some(Wait::AtMost(wait)) => lock.wait(wait),
            Some(Wait::Forever) => lock.wait_forever(),
            None => lock,
        })
    });
    async move { lock?.acquire().await }
}

/// Runs the body under the lock. An error of the body's own is kept, also when it came too late.
pub fn run<F, T, E>(guard: LockGuard, body: F) -> RunResult<F>
where
    F: Future<Output = Result<T, E>>,
{
    RunResult { raced: Raced::new(guard, body) }
}

pin_project! {
    /// A struct and no `async fn`, which would keep the body's room twice.
    #[must_use = "futures do nothing unless awaited"]
    pub struct RunResult<F: Future> {
        #[pin]
        raced: Raced<F>,
    }
}

impl<F, T, E> Future for RunResult<F>
where
    F: Future<Output = Result<T, E>>,
{
    type Output = Result<Result<T, E>, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(self.project().raced.poll(cx)) {
            Outcome::InTime(output) | Outcome::Late(output @ Err(_), _) => Ok(output),
            Outcome::Late(Ok(_), loss) | Outcome::Dropped(loss) => Err(loss),
        })
    }
}

impl<F: Future> fmt::Debug for RunResult<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunResult").finish_non_exhaustive()
    }
}
