#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, LockManager, distributed_lock};

#[distributed_lock(key = "user:<id>")]
async fn parameter<Id: Send>(id: Id) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "user:<id>")]
async fn anonymous(id: &(impl Send + Sync)) -> Result<(), LockError> {
    Ok(())
}

struct Store<T>(T);

impl<T: Send + Sync> Store<T> {
    #[distributed_lock(key = "user:<id>")]
    async fn of_the_block(&self, id: T) -> Result<(), LockError> {
        Ok(())
    }
}

fn main() {}
