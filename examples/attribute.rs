//! The attribute: a function that runs in one process at a time for each key.
//! `cargo run --example attribute`, or with `LOCK_URL=redis://127.0.0.1:6379` on a server.
//!
//! It shows two bookings of one seat, the second of which waits for the first; two bookings of different seats,
//! which do not wait; and a method that brings its own manager.

use std::{
    env,
    time::{Duration, Instant},
};

use lock_runtime::{LockError, LockManager, distributed_lock, set_global};
use tokio::time::sleep;

/// The key is made of the arguments. The lock comes from the manager that `main` sets for the process.
///
/// The lease is renewed while the body runs; `ttl` is how long a crash of this process keeps the others out. The
/// function's error may be any type that implements `From<LockError>`, such as `LockError` itself.
#[distributed_lock(key = "seat:<row>:<number>", ttl = "10s", wait = "5s")]
async fn book(row: &str, number: u32, guest: &str) -> Result<(), LockError> {
    println!("  {guest} books seat {row}{number}");
    sleep(Duration::from_millis(300)).await;
    Ok(())
}

struct Theatre {
    name: String,
    locks: LockManager,
}

impl Theatre {
    /// A method: the key may use fields of `self`, and `manager` names the manager to use.
    #[distributed_lock(key = "theatre:<self.name>", manager = self.locks, wait = "0s")]
    async fn rehearse(&self) -> Result<(), LockError> {
        println!("  rehearsal in {}", self.name);
        sleep(Duration::from_millis(300)).await;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = env::var("LOCK_URL").unwrap_or_else(|_| "memory:".into());
    let locks = LockManager::connect(&url).await?;
    set_global(locks.clone()).expect("set once");

    println!("one seat:");
    let start = Instant::now();
    let (anna, ben) = tokio::join!(book("A", 1, "Anna"), book("A", 1, "Ben"));
    println!("  {anna:?} and {ben:?} after {:.1?}: one after the other", start.elapsed());

    println!("two seats:");
    let start = Instant::now();
    let (anna, ben) = tokio::join!(book("B", 1, "Anna"), book("B", 2, "Ben"));
    println!("  {anna:?} and {ben:?} after {:.1?}: at the same time", start.elapsed());

    println!("two rehearsals, and the second does not want to wait:");
    let theatre = Theatre { name: "Globe".into(), locks: locks.clone() };
    let (first, second) = tokio::join!(theatre.rehearse(), theatre.rehearse());
    println!("  {first:?} and {second:?}");

    locks.shutdown().await;
    Ok(())
}
