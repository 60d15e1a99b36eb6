use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "user:id")]
async fn withdraw(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {}
