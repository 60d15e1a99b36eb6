//! Every kind of function, on a Redis server.
//!
//! What the tests of `lock-macros` depend on is compiled for them alone, because the tests of a crate of macros are. So the
//! driver of Redis is not among it.

#[path = "../lock-macros/tests/signatures/cases/mod.rs"]
mod cases;
#[path = "support/mod.rs"]
#[allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::all, clippy::pedantic, reason = "shared")]
mod support;

use std::{sync::OnceLock, thread};

use lock_runtime::LockManager;
use support::redis_server::RedisServer;

/// Connects from a separate runtime, which the manager outlives.
fn connect() -> LockManager {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    let server = SERVER.get_or_init(|| RedisServer::start(&[]));
    let url = format!("redis+unix://{}", server.socket().display());
    let connected = thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(LockManager::connect(&url)).expect("the server is up")
    });
    connected.join().expect("no panic")
}
