#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id>", on_contention = "skip")]
async fn quoted(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", on_contention = ignore)]
async fn contention(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", on_lost = abort)]
async fn lost(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
