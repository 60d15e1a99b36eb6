//! The scope: the locks under which the current code runs.
//!
//! The scope is entered and left with each poll. While a body is polled under its locks, their guards are on a stack of
//! this thread; when the poll returns or panics, the guards are moved back. The scope therefore moves with a future
//! from thread to thread and includes everything that the body polls, but not the tasks that it spawns.

use std::cell::RefCell;

use crate::{
    HeldLock, LockError, LockErrorKind, LockGuard, LockKey, backend::Mode, engine::Engine,
    engine::request::Request, guard::set::Guards, time::clock::Instant,
};

thread_local! {
    static SCOPE: RefCell<Vec<Guards>> = const { RefCell::new(Vec::new()) };
}

/// The stay in the scope of some guards, which are moved back when this value is dropped. Guards are not cloned, so no
/// reference count changes.
pub(super) struct Inside<'a> {
    guards: &'a mut Option<Guards>,
    entered: bool,
}

impl<'a> Inside<'a> {
    /// Moves the guards out of `guards` into the scope.
    pub(super) fn enter(guards: &'a mut Option<Guards>) -> Self {
        // A thread that is about to end no longer has this stack. The guards then stay in `guards`.
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

/// Applies `make` to the innermost lock that `wanted` selects. Neither function may run user code, because the scope is
/// borrowed.
fn innermost<T>(wanted: impl FnMut(&&LockGuard) -> bool, make: impl FnOnce(&LockGuard) -> T) -> Option<T> {
    let find = |scope: &[Guards]| scope.iter().rev().flat_map(Guards::locks).find(wanted).map(make);
    SCOPE.try_with(|scope| find(&scope.borrow())).ok().flatten()
}

/// Returns the locks of the innermost section.
fn here() -> Vec<HeldLock> {
    let find =
        |scope: &[Guards]| scope.last().map(|guards| guards.locks().iter().map(LockGuard::held).collect());
    SCOPE.try_with(|scope| find(&scope.borrow())).ok().flatten().unwrap_or_default()
}

/// Returns the result of acquiring a lock that this scope already holds, or `None` if this scope does not hold it.
pub(crate) fn reenter(engine: &Engine, request: &Request) -> Option<Result<LockGuard, LockError>> {
    let options = &request.options;
    let again = innermost(|held| held.is_of(engine, &request.lock.key), LockGuard::again)?;
    // Validity is checked first, even without `reentrant`: a section that has lost its lock would not wait for itself,
    // but has to stop.
    Some(again.ensure_valid().and_then(|()| {
        // A section that asks for its lock in another mode would wait for itself, even with `reentrant`.
        if options.reentrant && *again.lock() == request.lock {
            let until = Instant::now() + options.hold_at_least;
            if !options.hold_at_least.is_zero() {
                again.check_held_until(until)?;
                again.turn().retain_until(until);
            }
            return Ok(again.reentered());
        }
        Err(LockError::new(
            LockErrorKind::WouldDeadlock,
            "already held by the section that asks for it, which would wait for itself; acquire it once, or set \
             `reentrant`",
        ))
    }))
}

/// Returns the lock under which the current code is running, or the innermost one if it runs under several nested
/// locks.
///
/// Code runs under a lock if it is the body of [`LockGuard::run`] or of a `#[distributed_lock]` function, if it handles
/// a request behind lock-tower's layer, or if such code calls or awaits it. Tasks that such code spawns do not run
/// under the lock, nor does code that merely has a guard in a variable.
///
/// If a body is dropped before it completes, its variables are dropped before the lock is released, but `current` does
/// not return that lock when called from their destructors.
///
/// If the innermost body runs under several locks that were acquired together (a [`MultiGuard`](crate::MultiGuard)),
/// `current` returns `None`, because none of these locks takes precedence. Call [`ensure_locked`] with the name of one
/// of them instead.
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

/// Returns the lock named `key` if the current code runs under it, and an error otherwise.
///
/// Call this function in code that must only run under a particular lock. [`current`] explains which code runs under a
/// lock. The name is looked up, ignoring prefixes, among all the locks under which the code runs, in any store. As a
/// result, a lock of the same name in another store, or with another prefix, also passes the check.
///
/// For a key that contains values, use `lock_key!`, which encodes them in the same way as the attribute.
///
/// # Errors
/// * [`NotHeld`](LockErrorKind::NotHeld) if the current code does not run under the lock;
/// * [`Lost`](LockErrorKind::Lost) if the current code runs under the lock, but the lock has been lost;
/// * [`InvalidKey`](LockErrorKind::InvalidKey) if `key` is not a valid name.
///
/// # Example
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// # let locks = lock_runtime::LockManager::connect("memory:").await?;
/// use lock_runtime::{LockError, LockErrorKind, ensure_locked, lock_key};
///
/// /// Must be called under the lock of the user.
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
    // The caller relies on being the only holder, so a lock in another mode does not count.
    let wanted = |held: &&LockGuard| held.key() == key && held.lock().mode == Mode::Exclusive;
    match innermost(wanted, LockGuard::again) {
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
