//! The expressions that `manager = …` accepts.

use std::sync::{Arc, LazyLock, OnceLock};

use lock_runtime::{LockError, LockManager, backend::Memory, current, distributed_lock};

static LAZY: LazyLock<LockManager> = LazyLock::new(|| LockManager::new(Memory::new()));
static ONCE: OnceLock<Arc<LockManager>> = OnceLock::new();

#[distributed_lock(key = "user:<id>", manager = LAZY)]
async fn made_at_first_use(id: u64) -> Result<bool, LockError> {
    Ok(current().is_some())
}

#[distributed_lock(key = "user:<id>", manager = ONCE.get().expect("set at start"))]
async fn set_at_start(id: u64) -> Result<bool, LockError> {
    Ok(current().is_some())
}

#[tokio::test]
async fn a_static_is_named_as_it_is() {
    assert!(made_at_first_use(1).await.expect("free"));
    assert!(ONCE.set(Arc::new(LAZY.clone())).is_ok());
    assert!(set_at_start(1).await.expect("free"));
}
