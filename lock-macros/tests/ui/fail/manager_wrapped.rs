#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

/// Like `State` and `Extension` of axum, and `Data` of actix-web.
struct State<T>(T);

impl<T> std::ops::Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[distributed_lock(key = "user:<id>", manager = locks)]
async fn as_it_is(locks: State<LockManager>, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>", manager = *locks)]
async fn as_the_message_says(locks: State<LockManager>, id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
