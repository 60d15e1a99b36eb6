#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>", wait = "soon")]
async fn word(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", wait = 5)]
async fn number(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
