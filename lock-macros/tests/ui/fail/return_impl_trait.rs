#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id>")]
async fn hidden(id: u64) -> impl std::fmt::Display {
    id
}

#[distributed_lock(key = "user:<id>", on_contention = skip)]
async fn skipped(id: u64) -> Result<impl std::fmt::Display, LockError> {
    Ok(id)
}

fn main() {}
