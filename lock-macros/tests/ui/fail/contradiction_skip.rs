#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id>", wait = "forever", on_contention = skip)]
async fn never_skipped(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
