#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[tokio::test]
#[distributed_lock(key = "job")]
async fn runs() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
