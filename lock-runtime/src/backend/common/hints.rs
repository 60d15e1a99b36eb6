//! Messages about the release of locks.
//!
//! A message is only a hint: any client with the right to publish can send a false message, and a message may be lost.
//! Therefore, every waiter also asks for its lock again after a pause.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

use crate::sync::{check_or_wait, lock};

/// Counts the messages on the channels that this process watches. Each lock has its own channel.
#[derive(Debug, Default)]
pub(in crate::backend) struct Hints {
    by_channel: Mutex<HashMap<Arc<str>, Watched>>,
}

#[derive(Debug, Default)]
struct Watched {
    watchers: usize,
    releases: Arc<Releases>,
}

/// The messages on one channel.
#[derive(Debug, Default)]
struct Releases {
    count: AtomicU64,
    more: Notify,
    /// The text of the last message, if it had one.
    #[cfg(feature = "postgres")]
    text: Mutex<Option<Arc<str>>>,
}

impl Hints {
    /// Counts the messages on a channel until the [`Watch`] is dropped.
    pub(in crate::backend) fn watch(self: &Arc<Self>, channel: Arc<str>) -> Watch {
        let mut by_channel = lock(&self.by_channel);
        let watched = by_channel.entry(Arc::clone(&channel)).or_default();
        watched.watchers += 1;
        let releases = Arc::clone(&watched.releases);
        drop(by_channel);
        Watch { hints: Arc::clone(self), channel, releases }
    }

    /// Counts a message on a channel, and wakes the waiters for that channel.
    pub(in crate::backend) fn notify(&self, channel: &str) {
        if let Some(watched) = lock(&self.by_channel).get(channel) {
            watched.releases.notify();
        }
    }

    /// Like [`notify`](Self::notify), and keeps the text of the message.
    #[cfg(feature = "postgres")]
    pub(in crate::backend) fn notify_with_text(&self, channel: &str, text: &str) {
        if let Some(watched) = lock(&self.by_channel).get(channel) {
            watched.releases.notify_with_text(Some(text));
        }
    }

    /// Counts a message on every channel. Call this method when messages may have been lost.
    #[cfg(feature = "postgres")]
    pub(in crate::backend) fn notify_all(&self) {
        lock(&self.by_channel).values().for_each(|watched| watched.releases.notify());
    }

    /// Returns whether any channel is watched.
    #[cfg(feature = "postgres")]
    pub(in crate::backend) fn is_watched(&self) -> bool {
        !lock(&self.by_channel).is_empty()
    }
}

impl Releases {
    fn notify(&self) {
        #[cfg(feature = "postgres")]
        self.notify_with_text(None);
        #[cfg(not(feature = "postgres"))]
        self.count_one();
    }

    #[cfg(feature = "postgres")]
    fn notify_with_text(&self, text: Option<&str>) {
        *lock(&self.text) = text.map(Arc::from);
        self.count_one();
    }

    fn count_one(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.more.notify_waiters();
    }
}

/// A count of the messages on one channel; ends when dropped.
#[derive(Debug)]
pub(in crate::backend) struct Watch {
    hints: Arc<Hints>,
    channel: Arc<str>,
    releases: Arc<Releases>,
}

impl Watch {
    pub(in crate::backend) fn channel(&self) -> &Arc<str> {
        &self.channel
    }

    /// Returns the number of messages on the channel so far.
    pub(in crate::backend) fn count(&self) -> u64 {
        self.releases.count.load(Ordering::Relaxed)
    }

    /// Returns the text of the last message, if it had one.
    #[cfg(feature = "postgres")]
    pub(in crate::backend) fn text(&self) -> Option<Arc<str>> {
        lock(&self.releases.text).clone()
    }

    /// Completes when the number of messages is at least `count`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(in crate::backend) async fn reached(&self, count: u64) {
        let reached = || (self.count() >= count).then_some(());
        while check_or_wait(&self.releases.more, reached).await.is_none() {}
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut by_channel = lock(&self.hints.by_channel);
        if let Some(watched) = by_channel.get_mut(&self.channel) {
            watched.watchers -= 1;
            if watched.watchers == 0 {
                by_channel.remove(&self.channel);
            }
        }
    }
}
