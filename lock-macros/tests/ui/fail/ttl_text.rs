#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>", ttl = "30x")]
async fn unit(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", ttl = "30")]
async fn no_unit(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", ttl = 30s)]
async fn no_quotes(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", ttl = "99999999999999999999h")]
async fn overflow(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
