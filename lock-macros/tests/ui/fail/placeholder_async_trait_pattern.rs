#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[async_trait::async_trait]
trait Transfer {
    async fn transfer(&self, accounts: (u64, u64)) -> Result<(), LockError>;
}

#[async_trait::async_trait]
impl Transfer for () {
    #[distributed_lock(key = "account:<from>")]
    async fn transfer(&self, (from, to): (u64, u64)) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
