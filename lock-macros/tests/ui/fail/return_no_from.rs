#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[derive(Debug)]
struct AppError;

#[distributed_lock(key = "user:<id>")]
async fn no_from(id: u64) -> Result<(), AppError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>")]
async fn text(id: u64) -> Result<(), String> {
    Ok(())
}

#[distributed_lock(key = "user:<id>")]
async fn of_the_standard_library(id: u64) -> std::io::Result<()> {
    Ok(())
}

fn main() {}
