#![deny(warnings)]
use lock_runtime::{LockError, distributed_lock};

fn main() {
    let _ = locked(1);
}

#[distributed_lock(key = "user:<id>", guard = held)]
async fn locked(id: u64) -> Result<(), LockError> {
    Ok(())
}
