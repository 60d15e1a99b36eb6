#![allow(dead_code, unused_imports)]
use lock_runtime::distributed_lock;

#[distributed_lock(key = "user:<name>", or_else = |error| format!("{name}: {error}"))]
async fn greet(name: String) -> String {
    name
}

fn main() {}
