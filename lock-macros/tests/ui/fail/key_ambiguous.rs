#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "<a><b>")]
async fn adjacent(a: u64, b: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "<a>-<b>")]
async fn weak(a: u64, b: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
