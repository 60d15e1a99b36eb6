//! Tests of servers of one store, which are therefore not cases of the conformance suite.
//!
//! One program, because each links all dependencies of the crates: `cargo test --test servers --all-features --
//! zookeeper_ensemble::` runs one of its parts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails here")]
#![allow(unreachable_pub, dead_code, reason = "the support is shared with other tests")]

#[cfg(feature = "secure")]
mod authority;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod client_name;
#[cfg(any(feature = "redis", feature = "zookeeper"))]
mod forked;
#[cfg(feature = "redis")]
mod interop;
#[cfg(feature = "redis")]
mod leader_example;
#[cfg(feature = "redis")]
mod limits;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_cluster;
#[cfg(feature = "secure")]
mod redis_secure;
#[cfg(feature = "redis")]
mod redis_sentinel;
#[cfg(feature = "redis")]
mod redisson;
#[cfg(feature = "redis")]
mod redlock;
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "zookeeper")]
mod zookeeper;
#[cfg(feature = "zookeeper")]
mod zookeeper_ensemble;
#[cfg(feature = "secure")]
mod zookeeper_secure;

/// Reads the traces of all tests, the drivers' as well: a secret as text, and as the numbers of a printed list of bytes.
fn watch_traces() {
    support::traces::watch("", &["canary", "99, 97, 110, 97, 114, 121"]);
}
