//! What the attribute's expansion and the layer call; not for anybody else, and without promises.

use std::{future::Future, sync::Arc, time::Duration};

use crate::{
    LockError, LockErrorKind, LockGuard, LockManager, global,
    run::{Outcome, Raced},
};
#[path = "duration.rs"]
pub mod duration;
#[path = "template.rs"]
pub mod template;

pub use crate::{
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

impl<M: AsLockManager + ?Sized> AsLockManager for &M {
    fn as_lock_manager(&self) -> &LockManager {
        (**self).as_lock_manager()
    }
}

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
    let lock = manager.and_then(|manager| {
        let name =
            key.finish().map_err(|empty| LockError::new(LockErrorKind::InvalidKey, empty.to_string()))?;
        let mut lock = manager.lock(name);
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
pub async fn run<F, T, E>(guard: LockGuard, body: F) -> Result<Result<T, E>, LockError>
where
    F: Future<Output = Result<T, E>>,
{
    match Raced::new(guard, body).await {
        Outcome::InTime(output) | Outcome::Late(output @ Err(_), _) => Ok(output),
        Outcome::Late(Ok(_), loss) | Outcome::Dropped(loss) => Err(loss),
    }
}
