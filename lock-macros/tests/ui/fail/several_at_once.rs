#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:{id}", ttl = "1", wait = "2")]
async fn all_wrong(id: u64) -> u64 {
    id
}

fn main() {}
