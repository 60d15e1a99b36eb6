#![allow(unused)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>", tll = "30s")]
async fn misspelt(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", lease = "30s")]
async fn unknown(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
