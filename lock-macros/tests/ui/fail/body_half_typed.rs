#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>")]
async fn typing(id: String) -> Result<(), LockError> {
    id. ;
    Ok(())
}

fn main() {}
