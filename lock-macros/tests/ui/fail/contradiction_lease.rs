#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id>", hold_at_least = "1m", ttl = "30s", auto_renew = false)]
async fn least(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", max_hold = "forever", ttl = "30s", auto_renew = false)]
async fn most(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
