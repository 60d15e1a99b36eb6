#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

use std::rc::Rc;

#[distributed_lock(key = "user:<id>")]
async fn not_send(id: u8) -> Result<u8, LockError> {
    let shared = Rc::new(id);
    tokio::task::yield_now().await;
    Ok(*shared)
}

fn assert_send<T: Send>(_: T) {}

fn main() {
    assert_send(not_send(1));
}
