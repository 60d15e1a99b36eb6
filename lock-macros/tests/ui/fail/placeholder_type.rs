#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id:u64>")]
async fn typed(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
