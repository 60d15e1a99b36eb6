#![allow(dead_code, unused_imports)]
use lock_runtime::distributed_lock;

#[distributed_lock(key = "user:<id>", or_else = "busy")]
async fn text(id: u64) -> u64 {
    id
}

#[distributed_lock(key = "user:<id>", or_else = 5)]
async fn number(id: u64) -> u64 {
    id
}

const FALLBACK: u64 = 5;

#[distributed_lock(key = "user:<id>", or_else = FALLBACK)]
async fn constant(id: u64) -> u64 {
    id
}

fn main() {}
