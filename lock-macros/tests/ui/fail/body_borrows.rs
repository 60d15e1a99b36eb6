#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>")]
async fn forgotten_move(id: u64) -> Result<(), LockError> {
    tokio::spawn(async { println!("{id}") });
    Ok(())
}

#[distributed_lock(key = "user:<id>")]
async fn not_mutable(id: u64, names: Vec<String>) -> Result<(), LockError> {
    names.push(id.to_string());
    Ok(())
}

#[distributed_lock(key = "user:<id>")]
async fn behind_a_reference(id: u64, names: &Vec<String>) -> Result<(), LockError> {
    names.push(id.to_string());
    Ok(())
}

#[distributed_lock(key = "user:<id>")]
async fn not_assignable(id: u64, count: u64) -> Result<(), LockError> {
    count += 1;
    println!("{count}");
    Ok(())
}

#[distributed_lock(key = "user:<id>")]
async fn moved_twice(id: u64, names: Vec<String>) -> Result<(), LockError> {
    drop(names);
    drop(names);
    Ok(())
}

fn main() {}
