//! The interface for the code that the attribute generates, and for the layer. Nothing here is stable, so other code
//! must not use it.

mod outcome;

use std::{
    fmt,
    future::Future,
    panic::Location,
    sync::{Arc, LazyLock},
    time::Duration,
};

use crate::{
    HeldLock, IntoLockKey, Label, Lock, LockError, LockErrorKind, LockGuard, LockKey, LockManager,
    MultiGuard, MultiLock, options::LockOptions,
};

pub use crate::{
    guard::set::Guards,
    key::{
        class,
        encode::{Extracted, KeyParts, KeyValue, Named},
        template,
    },
    macro_support::outcome::{
        CanFail, FromLockError, Kept, Nothing, is_contention, nothing, or_else, or_error,
    },
    manager::global::{NoManager, default_manager},
    options::WaitFor as Wait,
    response::{Answer, Code, log},
    section::{
        OnLost, Section,
        run::{Outcome, Raced},
    },
    sync::SyncFuture,
    time::duration,
};

/// The options that were set. The others have the manager's defaults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// `ttl = …`
    pub ttl: Option<Duration>,
    /// `wait = …`
    pub wait: Option<Wait>,
    /// `auto_renew = …`
    pub auto_renew: Option<bool>,
    /// `max_hold = …`
    pub max_hold: Option<Duration>,
    /// `hold_at_least = …`
    pub hold_at_least: Option<Duration>,
    /// `once_per = …`, of a single lock
    pub once_per: Option<Duration>,
    /// `reentrant = …`
    pub reentrant: bool,
    /// `label = …`
    pub label: Option<Label>,
}

/// Returns whether an operator has revoked the lock, so that no other client gets the lock before its release or before the
/// deadline that the holder had until then.
#[must_use]
pub fn is_revoked(held: &HeldLock) -> bool {
    held.turn().hold.is_revoked()
}

/// A type of value that `manager = …` accepts.
#[diagnostic::on_unimplemented(
    message = "`manager` must be a `LockManager`, or a reference, an `Arc` or a `LazyLock` of one, not `{Self}`",
    label = "not a `LockManager`",
    note = "for a wrapper such as `State`, `Extension` or `web::Data`, dereference it: `manager = *locks`",
    note = "for a `OnceLock` or an `Option`, name the value inside, like `manager = LOCKS.get().expect(\"set at start\")`"
)]
pub trait AsLockManager {
    /// Returns the manager.
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

#[diagnostic::do_not_recommend]
impl<M: AsLockManager, F: FnOnce() -> M> AsLockManager for LazyLock<M, F> {
    fn as_lock_manager(&self) -> &LockManager {
        (**self).as_lock_manager()
    }
}

/// Returns the manager from `manager = …`.
pub fn manager<M: AsLockManager + ?Sized>(manager: &M) -> Result<&LockManager, NoManager> {
    Ok(manager.as_lock_manager())
}

impl Options {
    /// Sets these options, except `once_per`, which several locks do not have. Without the option `label`, the function is the label.
    fn apply(self, function: &str, to: &mut LockOptions) {
        let Self { ttl, wait, auto_renew, max_hold, hold_at_least, once_per: _, reentrant, label } = self;
        *to = LockOptions {
            ttl: ttl.unwrap_or(to.ttl),
            wait: wait.unwrap_or(to.wait),
            auto_renew: auto_renew.unwrap_or(to.auto_renew),
            max_hold: max_hold.unwrap_or(to.max_hold),
            hold_at_least: hold_at_least.unwrap_or(to.hold_at_least),
            reentrant,
            retry_after: to.retry_after,
            label: label.unwrap_or_else(|| default_label(function)),
        };
    }
}

/// Returns the label from `label = …`. The acquisition refuses a text that is not allowed.
pub fn label(text: &(impl AsRef<str> + ?Sized)) -> Label {
    Label::new(text.as_ref())
}

/// Returns the label of a lock whose program sets none: the end of the name of its function or route.
#[must_use]
pub fn default_label(name: &str) -> Label {
    Label::from_end_of(name)
}

/// Returns the name of a lock. The error says where the template stands.
fn name(key: KeyParts, place: impl fmt::Display) -> Result<Named, LockError> {
    key.finish().map_err(|empty| LockError::new(LockErrorKind::InvalidKey, format!("{place}: {empty}")))
}

/// Returns the result of `lock_key!`.
#[track_caller]
pub fn lock_key(key: KeyParts) -> Result<LockKey, LockError> {
    name(key, format_args!("`lock_key!` at {}", Location::caller()))?.into_lock_key("")
}

fn no_manager(function: &str) -> LockError {
    LockError::new(
        LockErrorKind::NoManager,
        format!(
            "`{function}` has no lock manager: write `manager = …` in its attribute, or call \
             `lock_runtime::set_global` at start"
        ),
    )
}

/// Returns the lock that this function requests.
pub fn lock<M: AsLockManager>(
    function: &str,
    manager: Result<M, NoManager>,
    key: KeyParts,
    options: Options,
) -> Result<Lock, LockError> {
    let name = name(key, format_args!("`{function}`"))?;
    let manager = manager.map_err(|NoManager| no_manager(function))?;
    let mut lock = manager.as_lock_manager().lock(name);
    options.apply(function, &mut lock.options);
    lock.once_per = options.once_per;
    Ok(lock)
}

/// Acquires the lock. It borrows nothing, so that the future keeps no value of the user across the wait.
pub async fn acquire(lock: Result<Lock, LockError>) -> Result<LockGuard, LockError> {
    // Not moved out, because the future would then reserve space for it twice.
    lock.as_ref().map_err(Clone::clone)?.acquire().await
}

/// Returns all the locks that this function requests.
pub fn all<M: AsLockManager, const N: usize>(
    function: &str,
    manager: Result<M, NoManager>,
    keys: [KeyParts; N],
    options: Options,
) -> Result<MultiLock, LockError> {
    let names = keys.into_iter().map(|key| name(key, format_args!("`{function}`")));
    let names: Vec<_> = names.collect::<Result<_, _>>()?;
    let manager = manager.map_err(|NoManager| no_manager(function))?;
    let mut locks = manager.as_lock_manager().all(names);
    options.apply(function, &mut locks.options);
    Ok(locks)
}

/// Acquires all the locks. Like [`acquire`], it borrows nothing.
pub async fn acquire_all(locks: Result<MultiLock, LockError>) -> Result<MultiGuard, LockError> {
    locks.as_ref().map_err(Clone::clone)?.acquire().await
}

/// Runs the body under the lock.
pub fn run<F: Future>(guard: impl Into<Guards>, body: F, on_lost: OnLost) -> Raced<F> {
    Raced::new(guard.into(), body, on_lost)
}
