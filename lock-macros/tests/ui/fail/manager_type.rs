#![allow(dead_code, unused_imports)]
use std::sync::Mutex;

use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>", manager = locks)]
async fn wrapped(locks: &Mutex<LockManager>, id: u64) -> Result<(), LockError> {
    Ok(())
}

static LOCKS: std::sync::OnceLock<LockManager> = std::sync::OnceLock::new();

#[distributed_lock(key = "user:<id>", manager = LOCKS)]
async fn not_set_yet(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", manager = "redis://localhost")]
async fn url(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
