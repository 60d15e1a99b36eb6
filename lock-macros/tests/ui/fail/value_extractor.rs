#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

struct Path<T>(T);

#[distributed_lock(key = "user:<id>")]
async fn handler(id: Path<u64>) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
