#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>", ttl = "0s")]
async fn zero(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", ttl = "99ms")]
async fn short(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", ttl = "24h1ms")]
async fn long(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", ttl = "forever")]
async fn forever(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
