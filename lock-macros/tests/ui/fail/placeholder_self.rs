#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<self.id>")]
async fn no_receiver(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
