#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>", auto_renew = "false")]
async fn text(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", crate = "lock_runtime")]
async fn quoted(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}

#[distributed_lock(key = "user:<id>", reentrant = yes)]
async fn word(id: u64) -> Result<(), LockError> {
    Ok(())
}
