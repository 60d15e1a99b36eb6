#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(keys = ["report", "user:<id>"], once_per = "24h")]
async fn report(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
