#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id>", guard = held)]
async fn locked(id: u64) -> Result<(), LockError> {
    held.release().await
}

fn main() {}
