#![allow(unused)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[derive(Debug)]
struct AppError;

#[distributed_lock(key = "user:<id>")]
async fn no_from(id: u64) -> Result<(), AppError> {
    Ok(())
}

fn main() {}
