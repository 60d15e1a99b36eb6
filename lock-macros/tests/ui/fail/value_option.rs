#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>")]
async fn optional(id: Option<u64>) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
