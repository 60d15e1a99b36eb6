//! The scope: which holds cover the code that runs now.
//!
//! It follows the polls. While a body is polled under its lock, its guard stands on a stack of this thread; when the
//! poll returns or panics, it is back where it was. So the scope goes with a future from thread to thread, covers
//! whatever the body polls in turn, and ends where the body spawns.

use std::cell::RefCell;

use crate::{HeldLock, LockError, LockErrorKind, LockGuard, LockKey, options::LockOptions, shared::Shared};

thread_local! {
    static SCOPE: RefCell<Vec<LockGuard>> = const { RefCell::new(Vec::new()) };
}

/// Does `work` in the scope of the guard, which is somewhere else meanwhile.
pub(crate) fn enter<T>(guard: &mut Option<LockGuard>, work: impl FnOnce() -> T) -> T {
    let _inside = Inside::new(guard);
    work()
}

/// Moves the guard into the scope and, dropped, back; no reference to a counter changes hands.
struct Inside<'a> {
    guard: &'a mut Option<LockGuard>,
    entered: bool,
}

impl<'a> Inside<'a> {
    fn new(guard: &'a mut Option<LockGuard>) -> Self {
        // Where the thread is about to end there is no stack, and nothing to be found on it.
        let entered = SCOPE.try_with(|scope| guard.take().map(|guard| scope.borrow_mut().push(guard)));
        let entered = matches!(entered, Ok(Some(())));
        Self { guard, entered }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if self.entered {
            *self.guard = SCOPE.try_with(|scope| scope.borrow_mut().pop()).ok().flatten();
        }
    }
}

/// What is made of the innermost hold that `wanted` picks. Nothing of the user's runs in it.
fn innermost<T>(wanted: impl FnMut(&&LockGuard) -> bool, make: impl FnOnce(&LockGuard) -> T) -> Option<T> {
    SCOPE.try_with(|scope| scope.borrow().iter().rev().find(wanted).map(make)).ok().flatten()
}

/// The answer to an acquisition of a lock that this scope holds; none when it does not.
pub(crate) fn enter_again(
    shared: &Shared,
    key: &LockKey,
    options: &LockOptions,
) -> Option<Result<LockGuard, LockError>> {
    let again = innermost(|held| held.is_of(shared, key), LockGuard::again)?;
    // Lost, it does not stand in its own way any more: the section has to stop, whatever it asked for.
    Some(again.ensure_valid().and_then(|()| {
        if options.reentrant {
            return Ok(again);
        }
        Err(LockError::new(
            LockErrorKind::WouldDeadlock,
            "held already by the section that asks for it, which would wait for itself; ask for it once, or allow it \
             with `reentrant`",
        ))
    }))
}

/// The hold that covers the code that runs now; the innermost where there are several.
///
/// A body is covered while it is polled by [`LockGuard::run`], by the attribute or by a layer, with whatever it polls
/// in turn. A task that it spawns is not, nor is code beside a guard that is merely alive.
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
    innermost(|_| true, LockGuard::held)
}

/// The hold of `key` that covers the code that runs now: a check for functions that must only be called under it.
///
/// It looks where [`current`] looks, for the name without the prefix, in whatever store.
///
/// # Errors
/// [`NotHeld`](LockErrorKind::NotHeld) when the lock is not held here, [`Lost`](LockErrorKind::Lost) when it was and
/// is not any more.
///
/// # Example
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = lock_runtime::LockManager::connect("memory:").await?;
/// use lock_runtime::{LockError, LockErrorKind, ensure_locked};
///
/// /// To be called under the lock of the user.
/// async fn write(user: u64) -> Result<(), LockError> {
///     let held = ensure_locked(format!("user:{user}"))?;
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
    let here = match current() {
        Some(held) => format!("here it is `{}`", held.key()),
        None => "here no lock is held, and a spawned task is outside of the section".into(),
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
