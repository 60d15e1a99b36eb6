#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>", auto_renew)]
async fn switch(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", manager = )]
async fn half_typed(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
