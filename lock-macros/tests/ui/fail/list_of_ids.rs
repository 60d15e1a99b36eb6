#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(keys = ids)]
async fn keys(ids: Vec<u64>) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<ids>")]
async fn value(ids: Vec<u64>) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
