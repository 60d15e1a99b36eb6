//! Locks whose key another client has set.

use std::time::Duration;

use lock_runtime::{LockErrorKind, LockManager};

use super::url;
use crate::support::redis_server::RedisServer;

/// Such a key never goes away, so the operator has to know.
#[tokio::test]
async fn a_key_without_an_expiry_is_named_as_the_cause() {
    let server = RedisServer::start(&[]);
    let locks = LockManager::connect(&url(&server, "")).await.unwrap();
    for (set, is_named) in
        [(&["SET", "lock:k", "foreign"][..], true), (&["SET", "lock:k", "foreign", "PX", "60000"], false)]
    {
        server.command(set);
        for (wait, kind) in [(0, LockErrorKind::Contended), (300, LockErrorKind::Timeout)] {
            let wait = Duration::from_millis(wait);
            let error = locks.lock("k").wait(wait).acquire().await.unwrap_err();
            assert_eq!(error.kind(), kind);
            assert_eq!(
                error.to_string().contains("set no expiry: it will not end by itself"),
                is_named,
                "{error}"
            );
            assert_eq!(error.retry_after().is_none(), is_named, "{error:?}");
        }
        // Ours always has one.
        server.command(&["DEL", "lock:k"]);
        let other = LockManager::connect(&url(&server, "")).await.unwrap();
        let guard = other.lock("k").acquire().await.unwrap();
        let error = locks.lock("k").wait(Duration::from_millis(300)).acquire().await.unwrap_err();
        assert!(!error.to_string().contains("expiry"), "{error}");
        guard.release().await.unwrap();
    }
}
