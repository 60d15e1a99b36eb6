//! Tests of a set of Redis servers with Sentinels: how the primary is found, and what a failover does to locks.

mod failover;
mod finding;
mod replicas;

use std::time::Duration;

use lock_runtime::{LockGuard, LockManager};

use crate::support::{redis_sentinel::RedisSet, until};

const LONG: Duration = Duration::from_secs(30);

async fn connect(set: &RedisSet) -> LockManager {
    LockManager::connect(&set.url("", "")).await.unwrap()
}

async fn free(locks: &LockManager, name: &str) -> LockGuard {
    locks.lock(name).wait(LONG).acquire().await.unwrap()
}

/// Waits until a key has arrived at all replicas.
async fn is_everywhere(set: &RedisSet, key: &str) {
    until(key, || {
        let has = |server: &crate::support::redis_sentinel::Member| {
            server.server.command(&["EXISTS", key]).int() == 1
        };
        if set.servers.iter().all(has) { Ok(()) } else { Err("not yet") }
    })
    .await;
}

/// Waits until no key but the fence is left on the primary.
async fn only_the_fence_is_left(set: &RedisSet) {
    until("only the fence is left", || match set.keys() {
        keys if keys.iter().all(|key| key == "lock:~1:fence") => Ok(()),
        keys => Err(keys),
    })
    .await;
    assert!(set.primary().server.command(&["PTTL", "lock:~1:fence"]).int() != -1);
}
