#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id>", hold_at_least = "0s")]
async fn zero(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", hold_at_least = "forever")]
async fn forever(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", hold_at_least = "a while")]
async fn word(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
