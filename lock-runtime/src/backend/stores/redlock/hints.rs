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

use super::{super::redis::net::Pushes, node::Line};
use crate::sync::{check_or_wait, lock};

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
struct Releases {
    count: AtomicU64,
    more: Notify,
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

/// A subscription to the releases of one lock; ends when dropped.
#[derive(Debug)]
pub(super) struct Watch {
    hints: Arc<Hints>,
    channel: Arc<str>,
    releases: Arc<Releases>,
    lines: Vec<Arc<Line>>,
}

impl Watch {
    pub(super) fn begin(hints: &Arc<Hints>, channel: Arc<str>) -> Self {
        let mut by_channel = lock(&hints.by_channel);
        let watched = by_channel.entry(Arc::clone(&channel)).or_default();
        watched.watchers += 1;
        let releases = Arc::clone(&watched.releases);
        drop(by_channel);
        Self { hints: Arc::clone(hints), channel, releases, lines: Vec::new() }
    }

    /// Subscribes over those of `lines` over which it has not yet. What is sent over them later is executed later.
    pub(super) fn subscribe_over(&mut self, lines: impl Iterator<Item = Arc<Line>>) {
        for line in lines {
            if !self.lines.iter().any(|other| Arc::ptr_eq(other, &line)) {
                line.subscribe(&self.channel);
                self.lines.push(line);
            }
        }
        self.lines.retain(|line| line.is_usable());
    }

    /// Returns the number of messages so far.
    pub(super) fn count(&self) -> u64 {
        self.releases.count.load(Ordering::Relaxed)
    }

    /// Completes when the number of messages is at least `count`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn reached(&self, count: u64) {
        let reached = || (self.count() >= count).then_some(());
        while check_or_wait(&self.releases.more, reached).await.is_none() {}
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for line in &self.lines {
            line.unsubscribe(&self.channel);
        }
        let mut by_channel = lock(&self.hints.by_channel);
        if let Some(watched) = by_channel.get_mut(&self.channel) {
            watched.watchers -= 1;
            if watched.watchers == 0 {
                by_channel.remove(&self.channel);
            }
        }
    }
}
