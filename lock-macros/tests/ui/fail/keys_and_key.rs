#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id>", keys = ["account:<id>"])]
async fn both(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
