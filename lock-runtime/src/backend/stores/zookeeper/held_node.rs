//! The nodes of the holds of a session, which operators may delete, or mark as revoked.
//!
//! A hold that lasts until a heartbeat is watched from then on. Nodes for which the session has no room for another
//! watch are read in turn instead, a few at each heartbeat.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::backend::BoxFuture;

/// Upper bound on the nodes without a watch that are read at a heartbeat, one after another.
const MAX_READS_PER_HEARTBEAT: usize = 256;

/// The node of a hold. The methods are called on the library's own runtime.
pub(super) trait HeldNode: Send + Sync {
    /// Starts to watch the node, unless the node is watched. Returns false if there is no room for another watch.
    fn watch(self: Arc<Self>) -> bool;

    /// Reads the node once. Returns false if the servers did not answer.
    fn read(self: Arc<Self>) -> BoxFuture<'static, bool>;

    /// The moment of the last reading, in nanoseconds; 0 before the first one.
    fn last_read(&self) -> u64;
}

/// How far a hold's node is watched.
#[derive(Debug, Default)]
pub(super) struct Attention {
    pub(super) watched: AtomicBool,
    /// In nanoseconds.
    pub(super) last_read: AtomicU64,
}

/// The readings of the nodes without a watch.
#[derive(Debug, Default)]
pub(super) struct Readings(Arc<AtomicBool>);

/// Declares the readings as finished when it is dropped.
struct Finish(Arc<AtomicBool>);

impl Drop for Finish {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Readings {
    /// Begins to read the nodes whose last reading is the longest ago, unless earlier readings are under way.
    pub(super) fn begin(&self, mut nodes: Vec<Arc<dyn HeldNode>>) {
        if nodes.is_empty() || self.0.swap(true, Ordering::AcqRel) {
            return;
        }
        let finish = Finish(Arc::clone(&self.0));
        nodes.sort_by_cached_key(|node| node.last_read());
        // Readings must not keep the session open.
        let nodes: Vec<_> = nodes.iter().take(MAX_READS_PER_HEARTBEAT).map(Arc::downgrade).collect();
        tokio::spawn(async move {
            let _finish = finish;
            for node in nodes.iter().filter_map(Weak::upgrade) {
                if !node.read().await {
                    break;
                }
            }
        });
    }
}
