#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(ttl = "30s")]
async fn no_key(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock]
async fn nothing(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
