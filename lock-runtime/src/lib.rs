//! Distributed locks for tokio: one interface to [stores](#stores) such as Redis, ZooKeeper, PostgreSQL and in-process
//! memory, guards that know their own deadline, and a [fencing token](FencingToken) for every holder.
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
//!     // Only one call for each `id` runs at a time, in this process and all others.
//!     Ok(())
//! }
//! # }
//! ```
//!
//! On an axum route or a tonic service, with the layer from the [`lock-tower`](https://docs.rs/lock-tower)
//! crate:
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
//! // `redis://127.0.0.1:6379` in production, `memory:` during development.
//! let locks = LockManager::connect("memory:").await?;
//!
//! // Waits up to 5 s. The 30 s lease is renewed while the guard is alive, for at most `max_hold` (1 h).
//! let guard = locks.lock("user:42").wait(Duration::from_secs(5)).acquire().await?;
//!
//! // Drops the future if the lock is lost; releases the lock once the future has completed.
//! let balance = guard.run(async { 100 - 30 }).await?;
//! assert_eq!(balance, 70);
//!
//! // Returns `None` if another caller holds the lock.
//! if let Some(guard) = locks.lock("user:42").try_acquire().await? {
//!     guard.release().await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! To build a key from values, use [`lock_key!`][lock_key]: it encodes them in the same way as the attribute.
//!
//! # Stores
//!
//! The URL that a [manager](LockManager::connect) connects to selects the store. The page [stores](docs::stores) compares
//! them: which one suits which program, on what condition a lock has at most one holder, how the URL is written, in which
//! order waiters are served, and what frees a lock after a crash.
//!
//! There is one more condition, whatever the store: a holder must stop working at its *deadline*, the moment from which
//! it can no longer rely on the lock. [`LockGuard::run`], the attribute and the layer take care of that.
//!
//! To add another store, implement [`backend::Backend`]. How to move to this library from another one is on the page
//! [migration](docs::migration).
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
//!
//! # Safety
//!
//! See [what a lock guarantees, under which conditions, and what you have to do yourself where the guarantee
//! ends](docs::safety). In short: a lock of this kind is not a mutex, because it can expire while your code is still
//! running. Send the [`FencingToken`] with each write to the resource that the lock protects (a database, say), and
//! have that resource reject any token smaller than the largest it has seen.
//!
//! # Operation
//!
//! See [operation](docs::operation) for the defaults, starting while the store is down, shutting down and logging. The
//! design of the crate is described in [architecture](docs::architecture), and its terms are explained in the
//! [glossary](docs::glossary). The command [`distlock`](docs::distlock) runs programs in any language under a lock.
//!
//! # Features
//!
//! * `macros` (on by default): the attribute [`#[distributed_lock]`][distributed_lock] and the macro
//!   [`lock_key!`][lock_key].
//! * `memory` (on by default), `postgres`, `redis`, `zookeeper`: the [stores with this feature in their
//!   row](docs::stores#urls).
//! * `zookeeper-sasl`: SASL (DIGEST-MD5) authentication for ZooKeeper.
//! * `tls-aws-lc-rs`, `tls-ring`: TLS connections for the enabled stores, if [their URLs](docs::stores#urls) ask for it,
//!   with the cryptography of AWS-LC or of ring. If the program installs a default `CryptoProvider` of rustls, that one is
//!   used (except by PostgreSQL's driver); otherwise, if both features are on, AWS-LC is used (by PostgreSQL's driver,
//!   ring). ZooKeeper's driver always brings AWS-LC into the build.
//! * `tls`: what both features enable. Enabled alone, it is for programs that install a default `CryptoProvider`; without
//!   one, connecting with TLS fails with `Unsupported`. PostgreSQL's driver needs one of the two features.
//! * `metrics`: the library records [metrics](docs::operation#metrics), for the recorder that the program installs with the
//!   crate of this name.
//! * `axum`: [`LockError`] implements `IntoResponse`, and [`HeldLock`] and [`HeldLocks`] are extractors. If a handler
//!   uses one of these types without this feature, the compiler reports that "the trait bound `Handler<_, _>` is not
//!   satisfied", or that `LockError` does not implement `IntoResponse`. lock-tower's own `axum` feature, which is on by
//!   default, enables this feature, too.
//! * `tonic`: `tonic::Status` implements `From<LockError>`, so `?` works in service methods. Without this feature, the
//!   compiler reports that `From<LockError>` is not implemented for `Status`.
//! * `cli`: the command [`distlock`](docs::distlock), which runs programs under a lock, on Unix. It has no effect on the
//!   library.
//!
//! The crate requires Rust 1.88 or later, because the current Redis and ZooKeeper client crates do, and 1.94 with the
//! feature `postgres`. A later release may require a newer version of Rust; the changelog will say so.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod backend;
pub mod docs;

mod background;
mod caller;
mod engine;
mod error;
mod finding;
mod guard;
mod hash;
mod holder;
mod idle;
mod json;
mod key;
mod label;
mod lock;
mod log_limiter;
#[expect(clippy::missing_errors_doc, reason = "hidden, behind `__private`")]
mod macro_support;
mod manager;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(not(feature = "metrics"))]
mod metrics;
#[cfg(test)]
mod mock;
mod options;
mod process;
mod response;
mod section;
#[cfg(test)]
mod simulated;
#[cfg(all(test, feature = "redis"))]
mod simulation;
mod sync;
mod time;
mod token;

/// For the code that the attribute generates, and for the layer. Nothing here is covered by a stability guarantee.
#[doc(hidden)]
pub mod __private {
    pub use crate::macro_support::*;
    /// For pages and programs that show locks to operators.
    pub mod json {
        pub use crate::json::{lock, text, timestamp};
    }
}

pub use engine::Limits;
pub use error::{LockError, LockErrorKind};
pub use guard::{HeldLock, HeldLocks, LockGuard, MultiGuard};
pub use holder::{LockHolder, LockWaiter};
pub use key::{IntoLockKey, LockKey};
pub use label::Label;
pub use lock::{Lock, MultiLock};
#[cfg(feature = "macros")]
#[doc(inline)]
pub use lock_macros::{distributed_lock, lock_key};
pub use manager::{
    AlreadySet, LeaderWatch, LockManager, LockScan, ManagerStatus, global, set_global, with_manager,
};
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
        send_and_sync::<crate::LeaderWatch>();
        send_and_sync::<crate::MultiGuard>();
        send_and_sync::<crate::HeldLocks>();
        send_and_sync::<crate::LockKey>();
        send_and_sync::<crate::LockError>();
        send_and_sync::<crate::ManagerStatus>();
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
            send(&lock.lead(|_| async {}));
            send(&locks.leader("").changed());
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
