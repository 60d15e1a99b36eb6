//! The manager of functions whose `#[distributed_lock]` has no `manager` argument.

use std::{future::Future, sync::OnceLock};

use crate::LockManager;

static GLOBAL: OnceLock<LockManager> = OnceLock::new();

tokio::task_local! {
    static SCOPED: LockManager;
}

/// Sets the process-wide default manager, which is used by functions whose `#[distributed_lock]` has no `manager`
/// argument.
///
/// Only the first call sets it; later calls return an error.
///
/// # Errors
/// Returns `manager` if a default manager is already set. `LockManager` does not implement `Error`, so `?` does not
/// convert it.
///
/// # Example
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_runtime::LockError> {
/// let locks = lock_runtime::LockManager::connect("memory:").await?;
/// lock_runtime::set_global(locks).expect("set once, at start");
/// # Ok(())
/// # }
/// ```
pub fn set_global(manager: LockManager) -> Result<(), LockManager> {
    GLOBAL.set(manager)
}

/// Returns the process-wide default manager, if [`set_global`] was called.
#[must_use]
pub fn global() -> Option<LockManager> {
    GLOBAL.get().cloned()
}

/// Runs `future` with `manager` instead of the process-wide default manager. This is meant for tests.
///
/// Tasks that `future` spawns do not use `manager`.
///
/// # Cancel safety
/// This function is as cancel safe as `future`.
pub async fn with_manager<F: Future>(manager: LockManager, future: F) -> F::Output {
    SCOPED.scope(manager, future).await
}

pub(crate) fn current_manager() -> Option<LockManager> {
    SCOPED.try_with(Clone::clone).ok().or_else(global)
}
