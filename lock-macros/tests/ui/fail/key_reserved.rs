#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "")]
async fn empty() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "~x")]
async fn reserved() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a\tb")]
async fn control() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
