#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[tokio::main]
#[distributed_lock(key = "job")]
async fn main() -> Result<(), LockError> {
    Ok(())
}
