//! Adapters for peers that need more than one call to lock.

use std::{sync::Arc, time::Duration};

use distributed_lock_core::traits::{DistributedLock as _, LockHandle, LockProvider};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider};

/// The crate `distributed-lock` on one Redis, with its defaults: a lease of 30 s.
#[derive(Clone)]
pub(crate) struct DistributedLock(Arc<RedisLockProvider>);

impl DistributedLock {
    pub(crate) async fn open(url: &str) -> Self {
        Self(Arc::new(RedisLockProvider::new(url).await.expect("the server answers")))
    }

    /// Makes one attempt, because `acquire` of this crate does not wait for a held lock but fails.
    pub(crate) async fn attempt(&self, key: &str) -> Option<RedisLockHandle> {
        self.0.create_lock(key).acquire(None).await.ok()
    }

    /// Attempts until one succeeds, with the random pause of 0–10 ms that is usual.
    pub(crate) async fn acquire(&self, key: &str) -> RedisLockHandle {
        loop {
            if let Some(handle) = self.attempt(key).await {
                return handle;
            }
            tokio::time::sleep(pause()).await;
        }
    }

    pub(crate) async fn release(handle: RedisLockHandle) {
        handle.release().await.expect("it is held");
    }
}

/// Random pause of 0–10 ms, as is usual in polling.
pub(crate) fn pause() -> Duration {
    let random = lock_runtime::OwnerToken::random().expose();
    Duration::from_micros(u64::try_from(random % 10_000).expect("below 10,000"))
}
