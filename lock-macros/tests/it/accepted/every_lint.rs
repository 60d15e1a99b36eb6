//! The expansion raises no lint of rustc or clippy: all of them are denied here but those that this file itself raises.
//! The check is `cargo clippy --all-targets`.
#![deny(warnings, clippy::all, clippy::pedantic, clippy::nursery, clippy::cargo, clippy::restriction)]
#![expect(clippy::blanket_clippy_restriction_lints, reason = "every lint is meant")]
#![allow(
    dead_code,
    clippy::arbitrary_source_item_ordering,
    clippy::needless_return,
    clippy::pub_with_shorthand,
    clippy::redundant_pub_crate,
    clippy::single_call_fn,
    clippy::std_instead_of_alloc,
    reason = "contrary to others, or raised by the code here"
)]

use core::time::Duration;
use std::sync::Arc;

use lock_runtime::{LockError, LockKey, LockManager, distributed_lock, lock_key};

#[distributed_lock(key = "user:<id>")]
pub(crate) async fn simple(id: u64) -> Result<u64, LockError> {
    return Ok(id);
}

#[distributed_lock(keys = ["user:<id>", "account:<id>"], or_else = |_| return, on_contention = skip)]
pub(crate) async fn nothing(id: u64) {
    #[expect(clippy::no_effect_underscore_binding, reason = "the body has something to do")]
    let _same = id;
}

#[distributed_lock(
    key = "user:<id>", ttl = ttl, wait = "0s", auto_renew = false, max_hold = "2s", hold_at_least = "500ms",
    manager = locks, on_contention = skip, on_lost = finish, reentrant = true, guard = held, label = "options"
)]
pub(crate) async fn options(
    locks: &LockManager,
    id: Arc<str>,
    ttl: Duration,
) -> Result<Option<Duration>, LockError> {
    return Ok(Some(held.remaining()));
}

pub(crate) struct Shop {
    tenant: String,
}

impl Shop {
    #[distributed_lock(key = "<self.tenant>/order:<order.0>", or_else = Self::refused)]
    pub(crate) async fn ship(&self, order: (u64, u64)) -> u64 {
        return order.1;
    }

    fn refused(error: LockError) -> u64 {
        drop(error);
        return 0;
    }
}

#[async_trait::async_trait]
pub(crate) trait Cancels {
    async fn cancel(&self, order: u64) -> Result<u64, LockError>;
}

pub(crate) struct Bare;

#[expect(clippy::implicit_return, reason = "`#[async_trait]` raises it without the lock")]
#[async_trait::async_trait]
impl Cancels for Bare {
    async fn cancel(&self, order: u64) -> Result<u64, LockError> {
        return Ok(order);
    }
}

#[expect(clippy::implicit_return, reason = "raised by `#[async_trait]`, as above")]
#[async_trait::async_trait]
impl Cancels for Shop {
    #[distributed_lock(key = "<self.tenant>/order:<order>")]
    async fn cancel(&self, order: u64) -> Result<u64, LockError> {
        return Ok(order);
    }
}

pub(crate) fn key(id: u64) -> Result<LockKey, LockError> {
    return lock_key!("user:<id>");
}
