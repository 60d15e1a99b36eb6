#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id>", max_hold = "0s")]
async fn zero(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", max_hold = 300)]
async fn number(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", max_hold = "long")]
async fn word(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
