//! The scope: which holds cover the code that runs now.
//!
//! It follows the polls. While a body is polled under its locks, their guards stand on a stack of this thread; when
//! the poll returns or panics, they are back where they were. So the scope goes with a future from thread to thread,
//! covers everything the body polls in turn, and ends where the body spawns.

use std::cell::RefCell;

use crate::{
    HeldLock, LockError, LockErrorKind, LockGuard, LockKey, engine::Engine, engine::request::Request,
    guard::set::Guards, time::clock::Instant,
};

thread_local! {
    static SCOPE: RefCell<Vec<Guards>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` in the scope of the guards, which are taken out of `guards` meanwhile.
pub(crate) fn enter<T>(guards: &mut Option<Guards>, work: impl FnOnce() -> T) -> T {
    let _inside = Inside::new(guards);
    work()
}

/// Moves the guards into the scope, and back when it is dropped; no reference count changes.
struct Inside<'a> {
    guards: &'a mut Option<Guards>,
    entered: bool,
}

impl<'a> Inside<'a> {
    fn new(guards: &'a mut Option<Guards>) -> Self {
        // A thread that is about to end has no stack, so nothing is found on it.
        let entered = SCOPE.try_with(|scope| guards.take().map(|guards| scope.borrow_mut().push(guards)));
        let entered = matches!(entered, Ok(Some(())));
        Self { guards, entered }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if self.entered {
            *self.guards = SCOPE.try_with(|scope| scope.borrow_mut().pop()).ok().flatten();
        }
    }
}

/// Applies `make` to the innermost hold that `wanted` picks. Neither may run user code: the scope is borrowed.
fn innermost<T>(wanted: impl FnMut(&&LockGuard) -> bool, make: impl FnOnce(&LockGuard) -> T) -> Option<T> {
    let find = |scope: &[Guards]| scope.iter().rev().flat_map(Guards::locks).find(wanted).map(make);
    SCOPE.try_with(|scope| find(&scope.borrow())).ok().flatten()
}

/// Returns the holds of the innermost section.
fn here() -> Vec<HeldLock> {
    let find =
        |scope: &[Guards]| scope.last().map(|guards| guards.locks().iter().map(LockGuard::held).collect());
    SCOPE.try_with(|scope| find(&scope.borrow())).ok().flatten().unwrap_or_default()
}

/// Answers an acquisition of a lock that this scope holds; `None` if it does not.
pub(crate) fn enter_again(engine: &Engine, request: &Request) -> Option<Result<LockGuard, LockError>> {
    let options = &request.options;
    let again = innermost(|held| held.is_of(engine, &request.key), LockGuard::again)?;
    // A lost hold no longer blocks its own section, which has to stop, with or without `reentrant`.
    Some(again.ensure_valid().and_then(|()| {
        if options.reentrant {
            let until = Instant::now() + options.hold_at_least;
            if !options.hold_at_least.is_zero() {
                again.check_held_until(until)?;
                again.turn().hold_until(until);
            }
            return Ok(again);
        }
        Err(LockError::new(
            LockErrorKind::WouldDeadlock,
            "already held by the section that asks for it, which would wait for itself; acquire it once, or set \
             `reentrant`",
        ))
    }))
}

/// Returns the hold that covers the running code: the innermost one if there are several.
///
/// A body is covered while [`LockGuard::run`], the attribute or a layer polls it, with everything it polls in turn. Not
/// covered are the tasks that it spawns, and code that runs while a guard is merely alive. The destructors of a body
/// that is dropped before its end run under the lock, but outside the scope.
///
/// Also returns `None` if the innermost section holds several locks, since none of them comes before the others:
/// [`ensure_locked`] finds each by its name.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = lock_runtime::LockManager::connect("memory:").await?;
/// async fn write() {
///     let held = lock_runtime::current().expect("called under the lock");
///     println!("written with fence {}", held.fencing_token());
/// }
///
/// locks.lock("user:42").acquire().await?.run(write()).await?;
/// assert!(lock_runtime::current().is_none());
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn current() -> Option<HeldLock> {
    let mut here = here();
    if here.len() == 1 { here.pop() } else { None }
}

/// Returns the hold of `key` that covers the running code: a check for functions that must only be called under it.
///
/// It searches all the sections around the running code, of every store, for the name without the prefix. A key that
/// contains values is best written with `lock_key!`, which encodes them as the attribute does.
///
/// # Errors
/// [`NotHeld`](LockErrorKind::NotHeld) if no section here holds the lock, [`Lost`](LockErrorKind::Lost) if it was lost,
/// and [`InvalidKey`](LockErrorKind::InvalidKey) if the name is not allowed.
///
/// # Example
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = lock_runtime::LockManager::connect("memory:").await?;
/// use lock_runtime::{LockError, LockErrorKind, ensure_locked, lock_key};
///
/// /// To be called under the lock of the user.
/// async fn write(user: u64) -> Result<(), LockError> {
///     let held = ensure_locked(lock_key!("user:<user>")?)?;
///     println!("written with fence {}", held.fencing_token());
///     Ok(())
/// }
///
/// locks.lock("user:42").acquire().await?.run(write(42)).await??;
/// assert_eq!(write(42).await.unwrap_err().kind(), LockErrorKind::NotHeld);
/// # Ok(())
/// # }
/// ```
pub fn ensure_locked(key: impl AsRef<str>) -> Result<HeldLock, LockError> {
    let key = key.as_ref();
    match innermost(|held| held.key() == key, LockGuard::again) {
        Some(held) => held.ensure_valid().map(|()| held.held()),
        None => Err(not_held(key)),
    }
}

fn not_held(key: &str) -> LockError {
    let here: Vec<_> = here().iter().map(|held| format!("`{}`", held.key())).collect();
    let here = match here.as_slice() {
        [] => "no lock is held here, and a spawned task is outside the section".into(),
        [held] => format!("the lock held here is {held}"),
        [held, ..] => format!("the locks held here are {held} and others"),
    };
    let error = LockError::new(
        LockErrorKind::NotHeld,
        format!("must be held by the section that calls this, and is not; {here}"),
    );
    match LockKey::new(key) {
        Ok(key) => error.with_key(&key),
        Err(malformed) => malformed,
    }
}

#[cfg(test)]
mod tests;
