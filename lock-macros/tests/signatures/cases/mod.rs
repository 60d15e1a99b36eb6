//! The attribute on every kind of function; the crate that includes this module chooses the store.
//!
//! The lints are part of the test: the attribute must add no warning.
#![deny(warnings)]
#![warn(clippy::pedantic)]

mod free_functions;
mod holds;
mod methods;
mod other_macros;
mod outputs;
mod promises;
mod spans;
mod traits;
mod types;

use std::{
    fmt::{self, Display},
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use lock_runtime::{LockError, LockErrorKind, LockManager, backend::Memory, distributed_lock};

/// The manager of all tests; each test has its own keys.
fn locks() -> &'static LockManager {
    static LOCKS: OnceLock<LockManager> = OnceLock::new();
    LOCKS.get_or_init(|| {
        let locks = crate::connect();
        lock_runtime::set_global(locks.clone()).expect("set once");
        locks
    })
}

/// Whether the lock is held. Tries it from another task, which is outside of the scope.
async fn is_held(key: &str) -> bool {
    let lock = locks().lock(key);
    tokio::spawn(async move {
        let Some(guard) = lock.try_acquire().await.expect("memory does not fail") else { return true };
        guard.release().await.expect("held a moment ago");
        false
    })
    .await
    .expect("no panic")
}

/// Asserts that the lock is held, where `key` is its name with encoded values.
async fn assert_held(key: &str) {
    assert!(is_held(key).await, "`{key}` is not held");
}

/// Waits for a release in the background.
async fn until_free(key: &str) {
    let free = async {
        while is_held(key).await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), free).await.expect("released");
}

fn assert_send<T: Send>(value: T) -> T {
    value
}

/// An application's error.
#[derive(Debug)]
enum AppError {
    Lock(LockError),
    Number(std::num::ParseIntError),
}

impl From<LockError> for AppError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<std::num::ParseIntError> for AppError {
    fn from(error: std::num::ParseIntError) -> Self {
        Self::Number(error)
    }
}

struct User {
    id: u64,
    place: (u8, u8),
}
