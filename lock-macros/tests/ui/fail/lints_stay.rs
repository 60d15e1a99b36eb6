#![deny(warnings)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "job:<id>")]
async fn unused(id: u64, unused: u8, _fine: u8) -> Result<(), LockError> {
    let mut unchanged = 1;
    Ok(())
}

#[distributed_lock(key = "job:<of>", or_else = |_| 0)]
async fn hidden(id: u64, amount: u64, of: u64) -> u64 {
    let id = amount;
    id
}

#[must_use]
struct Important;

fn important() -> Important {
    Important
}

#[distributed_lock(key = "job")]
async fn dropped() -> Result<Important, LockError> {
    important();
    Ok(important())
}

mod inner {
    struct Private;

    #[super::distributed_lock(key = "job")]
    pub(crate) async fn private_interface() -> Result<Private, super::LockError> {
        Ok(Private)
    }
}

pub async fn main_() {
    let _ = unused(1, 2, 3).await;
    let _ = hidden(1, 2, 3).await;
    let _ = dropped().await;
    let _ = inner::private_interface().await;
}

fn main() {
    let _ = main_();
}
