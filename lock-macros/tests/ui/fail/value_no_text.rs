#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

struct UserId(u64);

#[distributed_lock(key = "user:<id>")]
async fn no_display(id: UserId) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
