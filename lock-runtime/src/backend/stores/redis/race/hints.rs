//! Messages of the nodes that a lock was released. They are only hints: any client that may publish can send one, and
//! one may be lost. So each wait also ends by itself.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;

use super::super::net::Pushes;
use crate::sync::lock;

/// The locks whose releases this process waits for.
#[derive(Debug, Default)]
pub(super) struct Hints {
    by_channel: Mutex<HashMap<Arc<str>, Watched>>,
}

#[derive(Debug, Default)]
struct Watched {
    watchers: usize,
    releases: Arc<Releases>,
}

/// The messages about one lock.
#[derive(Debug, Default)]
pub(super) struct Releases {
    pub(super) count: AtomicU64,
    pub(super) more: Notify,
}

impl Hints {
    /// Begins to count the messages on a channel.
    pub(super) fn watch(&self, channel: &Arc<str>) -> Arc<Releases> {
        let mut by_channel = lock(&self.by_channel);
        let watched = by_channel.entry(Arc::clone(channel)).or_default();
        watched.watchers += 1;
        Arc::clone(&watched.releases)
    }

    pub(super) fn unwatch(&self, channel: &Arc<str>) {
        let mut by_channel = lock(&self.by_channel);
        if let Some(watched) = by_channel.get_mut(channel) {
            watched.watchers -= 1;
            if watched.watchers == 0 {
                by_channel.remove(channel);
            }
        }
    }
}

impl Pushes for Hints {
    fn take(&self, push: &PushInfo) {
        if push.kind == PushKind::Message
            && let Some(Value::BulkString(channel)) = push.data.first()
            && let Ok(channel) = std::str::from_utf8(channel)
            && let Some(watched) = lock(&self.by_channel).get(channel)
        {
            watched.releases.count.fetch_add(1, Ordering::Relaxed);
            watched.releases.more.notify_waiters();
        }
    }

    fn hang_up(&self, _: u64) {}
}
