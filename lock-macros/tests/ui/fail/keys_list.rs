#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(keys = "user:<id>")]
async fn no_list(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = ["user:<id>", "account:<id>"])]
async fn list_of_one(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = [])]
async fn empty(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = ["user:<id>", "user:<id>"])]
async fn twice(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
