//! The expansion names everything by its full path.
#![no_implicit_prelude]

use ::lock_runtime::{LockError, distributed_lock};

mod core {}
mod std {}
mod lock_runtime {}
struct Result;

#[distributed_lock(key = "user:<id>", ttl = "1s", wait = "forever", auto_renew = false)]
pub async fn locked(id: u64) -> ::std::result::Result<u64, LockError> {
    ::std::result::Result::Ok(id)
}

fn main() {
    let _ = locked;
    let _ = Result;
}
