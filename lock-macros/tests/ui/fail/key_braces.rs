#![allow(unused)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:{id}")]
async fn braces(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "{tenant:<id>}")]
async fn brace(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
