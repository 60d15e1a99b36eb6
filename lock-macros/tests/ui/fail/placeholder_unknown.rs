#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<idd>")]
async fn misspelt(id: u64, other: u8) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<account>")]
async fn another(id: u64, (first, _): (u8, u8)) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>")]
async fn none() -> Result<(), LockError> {
    Ok(())
}

struct Service {
    tenant: String,
}

impl Service {
    #[distributed_lock(key = "user:<tenant>")]
    async fn field(&self, id: u64) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
