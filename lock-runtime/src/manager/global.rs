//! The manager for attributes that name none.

use std::{future::Future, sync::OnceLock};

use crate::LockManager;

static GLOBAL: OnceLock<LockManager> = OnceLock::new();

tokio::task_local! {
    static SCOPED: LockManager;
}

/// Sets the manager of this process, for attributes that name none. Only the first call sets it.
///
/// # Errors
/// Returns `manager` if one is set already. It does not implement `Error`, so `?` does not convert it.
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

/// Returns the manager of this process, if [`set_global`] was called.
#[must_use]
pub fn global() -> Option<LockManager> {
    GLOBAL.get().cloned()
}

/// Runs `future` with `manager` in place of the process's manager; for tests. Tasks that `future` spawns do not see it.
///
/// # Cancel safety
/// As cancel safe as `future`.
pub async fn with_manager<F: Future>(manager: LockManager, future: F) -> F::Output {
    SCOPED.scope(manager, future).await
}

pub(crate) fn current_manager() -> Option<LockManager> {
    SCOPED.try_with(Clone::clone).ok().or_else(global)
}
