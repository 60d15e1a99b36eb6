//! Distributed locks for tokio.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod backend;

mod acquire;
mod background;
mod clock;
mod cohort;
mod connect;
mod error;
mod global;
mod guard;
mod hold;
mod keeper;
mod key;
mod key_parts;
mod lock;
mod manager;
mod options;
mod releaser;
mod run;
mod shared;
mod token;
mod validity;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

pub use error::{LockError, LockErrorKind};
pub use global::{global, set_global, with_manager};
pub use guard::{HeldLock, LockGuard};
pub use key::{IntoLockKey, LockKey};
pub use lock::Lock;
#[cfg(feature = "macros")]
pub use lock_macros::distributed_lock;
pub use manager::LockManager;
pub use run::Run;
pub use shared::Limits;
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
        ) {
            send(&crate::LockManager::connect(""));
            send(&locks.shutdown());
            send(&lock.acquire());
            send(&lock.try_acquire());
            send(&guard.lost());
            send(&guard.held().lost());
            send(&guard.release());
            send(&other.run(async {}));
        }
        let _ = check;
    }
}
