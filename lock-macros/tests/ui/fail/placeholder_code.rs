#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id()>")]
async fn call(id: fn() -> u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<names[0]>")]
async fn index(names: Vec<String>) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:< id >")]
async fn spaces(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id.len()>")]
async fn method(id: String) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<Self::ID>")]
async fn constant(id: String) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
