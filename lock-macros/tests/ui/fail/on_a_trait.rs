#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>")]
#[async_trait::async_trait]
pub trait Bank {
    async fn withdraw(&self, id: u64) -> Result<(), LockError>;
}

fn main() {}
