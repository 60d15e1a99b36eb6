#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id>", on_contention = skip)]
async fn nothing(id: u64) {
    drop(id);
}

#[distributed_lock(key = "user:<id>", on_contention = skip)]
async fn option(id: u64) -> Option<u64> {
    Some(id)
}

fn main() {}
