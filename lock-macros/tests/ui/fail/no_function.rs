#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

struct Service;

#[distributed_lock(key = "service")]
impl Service {
    async fn run(&self) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
