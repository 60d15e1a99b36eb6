#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:{id}")]
async fn as_in_format(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "{<tenant>}:{<id>}")]
async fn two_tags(tenant: u64, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "{<tenant>:x")]
async fn not_closed(tenant: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
