#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "report", once_per = "500ms")]
async fn short() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "report", once_per = "745h")]
async fn long() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "report", once_per = "day")]
async fn word() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "report", once_per = 24)]
async fn number() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
