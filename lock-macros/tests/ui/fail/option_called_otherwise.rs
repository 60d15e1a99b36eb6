#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>", timeout = "5s", lease = "30s", colour = blue)]
async fn names_of_others(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
