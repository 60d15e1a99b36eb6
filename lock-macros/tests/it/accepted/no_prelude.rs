//! Without a prelude: the expansion names everything by its full path.
#![no_implicit_prelude]

use ::lock_runtime::{LockError, distributed_lock};

mod core {}
mod std {}
mod lock_runtime {}
struct Result;

#[distributed_lock(
    key = "user:<id>", ttl = "1s", wait = "0s", auto_renew = false, max_hold = "1s", hold_at_least = "500ms",
    on_contention = skip, on_lost = finish, reentrant = true, guard = held
)]
pub(crate) async fn locked(id: u64) -> ::std::result::Result<(), LockError> {
    ::std::mem::drop(held);
    ::std::result::Result::Ok(())
}

#[distributed_lock(keys = ["user:<id>", "account:<id>"], wait = "forever", or_else = |_| 0)]
pub(crate) async fn several(id: u64) -> u64 {
    id
}

pub(crate) fn main() {
    let _ = (locked, several);
    let _ = Result;
}
