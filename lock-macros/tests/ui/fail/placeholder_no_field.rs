#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

struct User {
    id: u64,
}

#[distributed_lock(key = "user:<user.name>")]
async fn no_field(user: User) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
