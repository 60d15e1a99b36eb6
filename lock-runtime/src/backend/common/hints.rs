//! Messages that a lock was released. They are only hints: any client that may publish can send one, and
//! one may be lost. So each wait also ends by itself.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

use crate::sync::{check_or_wait, lock};

/// The locks whose releases this process waits for.
#[derive(Debug, Default)]
pub(in crate::backend) struct Hints {
    by_channel: Mutex<HashMap<Arc<str>, Watched>>,
}

#[derive(Debug, Default)]
struct Watched {
    watchers: usize,
    releases: Arc<Releases>,
}

/// The messages about one lock.
#[derive(Debug, Default)]
pub(in crate::backend) struct Releases {
    count: AtomicU64,
    more: Notify,
}

impl Hints {
    /// Begins to count the messages on a channel.
    pub(in crate::backend) fn watch(&self, channel: &Arc<str>) -> Arc<Releases> {
        let mut by_channel = lock(&self.by_channel);
        let watched = by_channel.entry(Arc::clone(channel)).or_default();
        watched.watchers += 1;
        Arc::clone(&watched.releases)
    }

    pub(in crate::backend) fn unwatch(&self, channel: &Arc<str>) {
        let mut by_channel = lock(&self.by_channel);
        if let Some(watched) = by_channel.get_mut(channel) {
            watched.watchers -= 1;
            if watched.watchers == 0 {
                by_channel.remove(channel);
            }
        }
    }

    /// Counts a message on this channel.
    pub(in crate::backend) fn tell(&self, channel: &str) {
        if let Some(watched) = lock(&self.by_channel).get(channel) {
            watched.releases.tell();
        }
    }

    /// Counts a message on each channel, because some may have been lost.
    #[cfg(feature = "postgres")]
    pub(in crate::backend) fn tell_all(&self) {
        lock(&self.by_channel).values().for_each(|watched| watched.releases.tell());
    }

    /// Returns whether anyone waits for messages.
    #[cfg(feature = "postgres")]
    pub(in crate::backend) fn is_watched(&self) -> bool {
        !lock(&self.by_channel).is_empty()
    }
}

impl Releases {
    fn tell(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.more.notify_waiters();
    }

    /// Returns the number of messages so far.
    pub(in crate::backend) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Completes when the number of messages is at least `count`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(in crate::backend) async fn reached(&self, count: u64) {
        let reached = || (self.count() >= count).then_some(());
        while check_or_wait(&self.more, reached).await.is_none() {}
    }
}
