#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id>", on_contention = skip)]
async fn number(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "user:<id>", on_contention = skip, or_else = |_| 0)]
async fn plain_number(id: u64) -> u64 {
    id
}

fn main() {}
