#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id>", label = id)]
async fn computed(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
