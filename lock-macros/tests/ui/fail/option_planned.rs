#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id>", mode = "read")]
async fn mode(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", permits = 3)]
async fn permits(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
