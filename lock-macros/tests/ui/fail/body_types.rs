#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>")]
async fn tail(id: u64) -> Result<u8, LockError> {
    Ok("x")
}

#[distributed_lock(key = "user:<id>")]
async fn inside(id: u64) -> Result<u8, LockError> {
    let n: u16 = id;
    Ok(1)
}

#[distributed_lock(key = "user:<id>")]
async fn no_tail(id: u64) -> Result<u8, LockError> {
    Ok(1);
}

#[distributed_lock(key = "user:<id>")]
async fn question_mark(id: &str) -> Result<u8, LockError> {
    Ok(id.parse::<u8>()?)
}

fn main() {}
