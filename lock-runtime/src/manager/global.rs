//! The manager of functions whose `#[distributed_lock]` has no `manager` argument.

use std::{error::Error, fmt, future::Future, sync::OnceLock};

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
/// [`AlreadySet`] if a default manager is already set.
///
/// # Example
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = lock_runtime::LockManager::connect("memory:").await?;
/// lock_runtime::set_global(locks)?;
/// # Ok(())
/// # }
/// ```
#[expect(clippy::result_large_err, reason = "called once")]
pub fn set_global(manager: LockManager) -> Result<(), AlreadySet> {
    GLOBAL.set(manager).map_err(AlreadySet)
}

/// The error of [`set_global`] if a process-wide default manager is already set.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use lock_runtime::{LockManager, set_global};
/// set_global(LockManager::connect("memory:").await?)?;
/// let second = LockManager::connect("memory:").await?;
/// let error = set_global(second).expect_err("the first one stays");
/// error.into_manager().shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AlreadySet(LockManager);

impl AlreadySet {
    /// Returns the manager that was not set.
    #[must_use]
    pub fn into_manager(self) -> LockManager {
        self.0
    }
}

impl fmt::Display for AlreadySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the process-wide lock manager is already set: call `set_global` once, at start")
    }
}

impl Error for AlreadySet {}

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

/// The error if neither `manager = …` nor a default manager is there.
#[derive(Clone, Copy, Debug)]
pub struct NoManager;

/// Returns the manager to use without `manager = …`.
///
/// # Errors
/// [`NoManager`] outside of [`with_manager`] if [`set_global`] was not called.
pub fn default_manager() -> Result<LockManager, NoManager> {
    SCOPED.try_with(Clone::clone).ok().or_else(global).ok_or(NoManager)
}
