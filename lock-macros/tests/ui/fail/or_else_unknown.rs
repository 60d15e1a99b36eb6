#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

fn busy(_: LockError) -> u64 {
    0
}

#[distributed_lock(key = "user:<id>", or_else = bsuy)]
async fn misspelt(id: u64) -> u64 {
    id
}

fn main() {}
