#![allow(unused)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(keys = ["a:<id>", "b:<id>"])]
async fn keys(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", max_hold = "5m")]
async fn max_hold(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", guard = held)]
async fn guard(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
