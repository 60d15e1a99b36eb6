#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>")]
fn blocking(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>")]
fn before(id: u64) -> impl Future<Output = Result<u64, LockError>> {
    let more = id + 1;
    async move { Ok(more) }
}

fn main() {}
