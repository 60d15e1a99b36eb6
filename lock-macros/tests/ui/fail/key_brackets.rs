#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id")]
async fn unclosed(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:id>")]
async fn unopened(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<>")]
async fn nothing_inside(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
