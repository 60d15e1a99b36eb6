#![deny(unused_must_use)]
use lock_runtime::{LockError, LockManager};

async fn released_at_once(locks: &LockManager) -> Result<(), LockError> {
    locks.lock("user:42").acquire().await?;
    locks.all(["user:42", "user:43"]).acquire().await?;
    Ok(())
}

fn main() {
    let _ = released_at_once;
}
