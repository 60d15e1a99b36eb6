#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id>", wiat = "5s")]
async fn wait(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(kye = "user:<id>")]
async fn key(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
