#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock("user:<id>")]
async fn positional(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
