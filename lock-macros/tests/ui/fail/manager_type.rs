#![allow(unused)]
use std::sync::Mutex;

use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>", manager = locks)]
async fn wrapped(locks: &Mutex<LockManager>, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", manager = "redis://localhost")]
async fn url(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
