#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

struct User {
    name: String,
}

#[distributed_lock(key = "user:<user.nam>")]
async fn in_a_field(user: &User) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<usr.name>")]
async fn in_a_parameter(user: &User) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
