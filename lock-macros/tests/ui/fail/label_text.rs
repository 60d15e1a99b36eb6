#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id>", label = "a label of more than sixty-three bytes, which is a story in itself")]
async fn long(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", label = "two\nlines")]
async fn control(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", label = "withdraw for <id>")]
async fn placeholder(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", label = 5)]
async fn number(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
