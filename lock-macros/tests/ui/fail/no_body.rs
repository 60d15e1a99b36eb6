#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

trait Transfer {
    #[distributed_lock(key = "account")]
    async fn transfer(&self) -> Result<(), LockError>;
}

fn main() {}
