#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>", tll = "30s")]
async fn misspelt(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", lease = "30s")]
async fn unknown(id: u64) -> Result<(), LockError> {
    Ok(())
}

async fn callers() {
    // The functions exist despite the errors, so nothing else is reported.
    let _: Result<(), LockError> = misspelt(1).await;
    let _: Result<(), LockError> = unknown(1).await;
}

fn main() {}
