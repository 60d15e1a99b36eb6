//! Every kind of function, on the store inside this process.

mod cases;

use lock_runtime::{LockManager, backend::Memory};

fn connect() -> LockManager {
    LockManager::new(Memory::new())
}
