//! A lock in a few lines. `cargo run --example quickstart`, or with `LOCK_URL=redis://127.0.0.1:6379` on a server.

use std::{env, time::Duration};

use lock_runtime::LockManager;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = env::var("LOCK_URL").unwrap_or_else(|_| "memory:".into());
    let locks = LockManager::connect(&url).await?;

    // Waits up to 5 s for another holder; the lease of 10 s is renewed for as long as the guard lives.
    let lock = locks.lock("user:42").ttl(Duration::from_secs(10)).wait(Duration::from_secs(5));
    let guard = lock.acquire().await?;
    println!(
        "holding {} with fencing token {}, safe for {:?}",
        guard.key(),
        guard.fencing_token(),
        guard.remaining()
    );

    // Busy is not an error.
    assert!(lock.try_acquire().await?.is_none());

    // The body is stopped if the lock is lost; the lock is released after it.
    let answer = guard.run(async { 6 * 7 }).await?;
    println!("the section returned {answer}");

    locks.shutdown().await;
    Ok(())
}
