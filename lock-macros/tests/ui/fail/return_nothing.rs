#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>")]
async fn nothing(id: u64) {}

#[distributed_lock(key = "user:<id>")]
async fn number(id: u64) -> u64 {
    id
}

#[distributed_lock(key = "user:<id>")]
async fn option(id: u64) -> Option<u64> {
    Some(id)
}

#[distributed_lock(key = "user:<id>")]
async fn hidden(id: u64) -> impl std::fmt::Display {
    id
}

fn main() {}
