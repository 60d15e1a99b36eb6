#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

struct Service {
    locks: LockManager,
}

impl Service {
    #[distributed_lock(key = "user:<id>", manager = slef.locks)]
    async fn misspelt(&self, id: u64) -> Result<(), LockError> {
        Ok(())
    }

    #[distributed_lock(key = "user:<id>", manager = self.lock)]
    async fn no_field(&self, id: u64) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
