//! Users of URLs, and servers that refuse for good.

use lock_runtime::{LockErrorKind, LockManager};

use super::{LONG, url};
use crate::support::redis_server::RedisServer;

#[tokio::test]
async fn a_user_with_an_empty_password_is_that_user_and_one_without_is_refused() {
    let server = RedisServer::start(&[]);
    server.command(&["ACL", "SETUSER", "locks", "reset", "on", "nopass", "~*", "&*", "+@all"]);
    let locks = LockManager::connect(&url(&server, "?user=locks&pass=")).await.unwrap();
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    let clients = server.command(&["CLIENT", "LIST"]).text();
    assert!(clients.contains("user=locks"), "{clients}");
    let error = LockManager::connect(&url(&server, "?user=locks")).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::InvalidOptions, "{error}");
    assert!(error.to_string().contains("a user but no password"), "{error}");
}

#[tokio::test]
async fn a_database_and_a_command_that_are_not_there_are_permanent_and_named() {
    let server = RedisServer::start(&[]);
    let error = LockManager::connect(&url(&server, "?db=99")).await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("no database of this number"), "{error}");
    for command in ["TIME", "PUBLISH"] {
        let server = RedisServer::start(&["--rename-command", command, ""]);
        let locks = LockManager::connect(&url(&server, "")).await.unwrap();
        let error = locks.lock("k").wait(LONG).acquire().await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(command), "{error}");
    }
}
