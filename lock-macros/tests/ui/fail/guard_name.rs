#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id>", guard = "held")]
async fn quoted(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", guard = id)]
async fn parameter(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
