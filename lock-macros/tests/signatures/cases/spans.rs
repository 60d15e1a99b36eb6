//! Whether a tracing span includes the wait for the lock: one above the attribute, one below it.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
};

use tracing::{Event, Metadata, Subscriber, span};

use super::*;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Counts the spans that this thread is in, without those of the library.
struct Depth(AtomicU64);

impl Subscriber for Depth {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !metadata.target().starts_with("lock_runtime")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &span::Id) {
        DEPTH.set(DEPTH.get() + 1);
    }

    fn exit(&self, _: &span::Id) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Called before the wait.
fn locks_in(depth: u32) -> &'static LockManager {
    assert_eq!(DEPTH.get(), depth);
    locks()
}

#[tracing::instrument]
#[distributed_lock(key = "span:above", manager = locks_in(0))]
async fn span_above() -> Result<u32, LockError> {
    Ok(DEPTH.get())
}

#[distributed_lock(key = "span:below", manager = locks_in(1))]
#[tracing::instrument]
async fn span_below() -> Result<u32, LockError> {
    Ok(DEPTH.get())
}

#[tokio::test]
async fn a_span_below_the_lock_includes_the_wait() {
    let _subscriber = tracing::subscriber::set_default(Depth(AtomicU64::new(0)));
    assert_eq!(span_above().await.expect("free"), 1);
    assert_eq!(span_below().await.expect("free"), 1);
}
