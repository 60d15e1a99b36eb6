//! What several stores of one kind of server share: its driver, connections, errors and batches, and an algorithm. A kit
//! knows no store.

#[cfg(feature = "postgres")]
pub(super) mod postgres;
#[cfg(feature = "redis")]
pub(super) mod redis;
#[cfg(feature = "redis")]
pub(super) mod unqueued;
