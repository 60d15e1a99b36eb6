#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

struct Response;

#[distributed_lock(key = "user:<id>")]
async fn no_result(id: u64) -> Response {
    Response
}

fn main() {}
