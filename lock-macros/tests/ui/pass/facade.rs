//! A crate that re-exports the runtime under another name.
mod facade {
    pub use lock_runtime as lock;
}

use facade::lock::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id>", crate = facade::lock)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop(locked(1));
}
