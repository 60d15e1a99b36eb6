//! `crate = …`: a crate that re-exports the runtime under another name.
mod elsewhere {
    pub(crate) use lock_runtime as lock;
}

use elsewhere::lock::{LockError, distributed_lock};

#[distributed_lock(key = "user:<id>", crate = elsewhere::lock)]
async fn locked(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

pub(crate) fn main() {
    drop(locked(1));
}
