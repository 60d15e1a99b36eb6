#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>", key = "account:<id>")]
async fn twice(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
