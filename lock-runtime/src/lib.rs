//! Distributed locks for tokio: one interface for the stores that people use for locks, guards that know their own
//! deadline, and a fencing token with every grant.
//!
//! On a function, with the [attribute][distributed_lock]:
//!
//! ```
//! # #[cfg(feature = "macros")]
//! # mod example {
//! use lock_runtime::{LockError, LockManager, distributed_lock};
//!
//! #[distributed_lock(key = "user:<id>", ttl = "30s", wait = "5s", manager = locks)]
//! async fn withdraw(locks: &LockManager, id: u64) -> Result<(), LockError> {
//!     // One caller for each `id` at a time, in this process and all others.
//!     Ok(())
//! }
//! # }
//! ```
//!
//! On an axum route or a tonic service, with the layer of the crate [`lock-tower`](https://docs.rs/lock-tower):
//!
//! ```text
//! let lock = LockLayer::new(locks, "user:<id:u64>")?;
//! let app = Router::new().route("/users/{id}/withdraw", post(withdraw).route_layer(lock));
//! ```
//!
//! By hand, with a [guard](LockGuard):
//!
//! ```
//! use std::time::Duration;
//! use lock_runtime::LockManager;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), lock_runtime::LockError> {
//! // `redis://127.0.0.1:6379` in production, `memory:` while developing.
//! let locks = LockManager::connect("memory:").await?;
//!
//! // Waits up to 5 s; the lease of 30 s is renewed for as long as the guard lives.
//! let guard = locks.lock("user:42").wait(Duration::from_secs(5)).acquire().await?;
//!
//! // The body is dropped if the lock is lost; the lock is released after it.
//! let balance = guard.run(async { 100 - 30 }).await?;
//! assert_eq!(balance, 70);
//!
//! // Busy is not an error.
//! if let Some(guard) = locks.lock("user:42").try_acquire().await? {
//!     guard.release().await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Compose a key from values with [`lock_key!`][lock_key], which encodes them as the attribute does.
//!
//! # Stores
//!
//! | store | holders are exclusive while |
//! |---|---|
//! | [`memory:`][memory] this process | they are in this process |
//! | [`redis:`, `rediss:`][redis] one Redis server | it keeps its data and its clock does not jump |
//! | [`zookeeper:`, `zookeeper+tls:`][zookeeper] a ZooKeeper ensemble | they mind their deadline |
//!
//! Each store is a feature of the same name; `rediss:` and `zookeeper+tls:` need the feature `tls` as well. A store of
//! your own implements [`backend::Backend`].
//!
#![cfg_attr(feature = "macros", doc = "[distributed_lock]: macro@distributed_lock")]
#![cfg_attr(feature = "macros", doc = "[lock_key]: macro@lock_key")]
#![cfg_attr(
    not(feature = "macros"),
    doc = "[distributed_lock]: https://docs.rs/lock-runtime/latest/lock_runtime/attr.distributed_lock.html"
)]
#![cfg_attr(
    not(feature = "macros"),
    doc = "[lock_key]: https://docs.rs/lock-runtime/latest/lock_runtime/macro.lock_key.html"
)]
#![cfg_attr(feature = "memory", doc = "[memory]: backend::memory")]
#![cfg_attr(
    not(feature = "memory"),
    doc = "[memory]: https://docs.rs/lock-runtime/latest/lock_runtime/backend/memory"
)]
#![cfg_attr(feature = "redis", doc = "[redis]: backend::redis")]
#![cfg_attr(
    not(feature = "redis"),
    doc = "[redis]: https://docs.rs/lock-runtime/latest/lock_runtime/backend/redis"
)]
#![cfg_attr(feature = "zookeeper", doc = "[zookeeper]: backend::zookeeper")]
#![cfg_attr(
    not(feature = "zookeeper"),
    doc = "[zookeeper]: https://docs.rs/lock-runtime/latest/lock_runtime/backend/zookeeper"
)]
//!
//! # Safety
//!
//! [What a lock promises, under which conditions, and what to do about the rest](docs::safety). In short: a lease is
//! not a mutex. Send the [`FencingToken`] to the resource with each write, and let the resource refuse any token
//! smaller than the largest it has seen.
//!
//! # Operation
//!
//! [Defaults, a store that is down at start, stopping, logging](docs::operation). The design:
//! [architecture](docs::architecture).
//!
//! # Features
//!
//! * `macros` (default): the attribute [`#[distributed_lock]`][distributed_lock] and [`lock_key!`][lock_key].
//! * `memory` (default): the store `memory:`.
//! * `redis`: the store `redis:`.
//! * `zookeeper`: the store `zookeeper:`; `zookeeper-sasl`: its authentication by SASL with DIGEST-MD5.
//! * `tls`: TLS connections for the enabled stores, `rediss:` and `zookeeper+tls:`.
//! * `axum`: [`LockError`] as the response of a handler, [`HeldLock`] and [`HeldLocks`] as its arguments. Without it
//!   the compiler says of such a handler that "the trait bound `Handler<_, _>` is not satisfied", or that `LockError`
//!   does not implement `IntoResponse`. The feature `axum` of lock-tower, on by default, enables it.
//! * `tonic`: [`LockError`] as the `Status` of a method. Without it the compiler says that the error `Status` is not
//!   `From<LockError>`.
//!
//! Rust 1.88 or later, as the newest drivers of the stores require. A later version of this crate may require a later
//! Rust; its changelog says so.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod backend;
pub mod docs;

mod background;
mod burst;
mod engine;
mod error;
mod guard;
mod idle;
mod key;
mod lock;
#[expect(clippy::missing_errors_doc, reason = "hidden, behind `__private`")]
mod macro_support;
mod manager;
#[cfg(test)]
mod mock;
mod options;
mod process;
mod response;
mod section;
mod sync;
mod time;
mod token;

/// Functions for the attribute's expansion and the layer only; not covered by any stability promise.
#[doc(hidden)]
pub mod __private {
    pub use crate::macro_support::*;
}

pub use engine::Limits;
pub use error::{LockError, LockErrorKind};
pub use guard::{HeldLock, HeldLocks, LockGuard, MultiGuard};
pub use key::{IntoLockKey, LockKey};
pub use lock::{Lock, MultiLock};
#[cfg(feature = "macros")]
#[doc(inline)]
pub use lock_macros::{distributed_lock, lock_key};
pub use manager::{LockManager, global, set_global, with_manager};
pub use section::{OnLost, Run, current, ensure_locked};
pub use token::{FencingToken, OwnerToken};

#[cfg(test)]
mod assertions {
    fn send_and_sync<T: Send + Sync + 'static>() {}
    fn send<T: Send>(_: &T) {}

    #[test]
    fn public_types_are_send_and_sync() {
        send_and_sync::<crate::LockManager>();
        send_and_sync::<crate::Lock>();
        send_and_sync::<crate::LockGuard>();
        send_and_sync::<crate::HeldLock>();
        send_and_sync::<crate::MultiLock>();
        send_and_sync::<crate::MultiGuard>();
        send_and_sync::<crate::HeldLocks>();
        send_and_sync::<crate::LockKey>();
        send_and_sync::<crate::LockError>();
        send_and_sync::<crate::FencingToken>();
    }

    #[test]
    fn public_futures_are_send() {
        fn check(
            locks: &crate::LockManager,
            lock: &crate::Lock,
            guard: crate::LockGuard,
            other: crate::LockGuard,
            several: &crate::MultiLock,
            [multi, another]: [crate::MultiGuard; 2],
        ) {
            send(&crate::LockManager::connect(""));
            send(&locks.shutdown());
            send(&lock.acquire());
            send(&lock.try_acquire());
            send(&guard.lost());
            send(&guard.held().lost());
            send(&guard.release());
            send(&other.run(async {}));
            send(&several.acquire());
            send(&several.try_acquire());
            send(&multi.lost());
            send(&multi.held().lost());
            send(&multi.release());
            send(&another.run(async {}));
        }
        let _ = check;
    }
}
