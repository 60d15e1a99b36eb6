#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id>", hold_at_least = "10s", max_hold = "5s")]
async fn least_and_most(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", ttl = "30s", max_hold = "10s")]
async fn lease_and_most(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
