//! Messages about the release of locks.
//!
//! A message is only a hint: any client with the right to publish can send a false message, and a message may be lost.
//! Therefore, every waiter also asks for its lock again after a pause.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use tokio::sync::watch;

use crate::sync::lock;

/// Counts the messages on the channels that this process watches. Each lock has its own channel.
#[derive(Debug, Default)]
pub(in crate::backend) struct Hints {
    by_channel: Mutex<HashMap<Arc<str>, watch::Sender<Messages>>>,
}

/// The messages on one channel.
#[derive(Debug, Default)]
struct Messages {
    count: u64,
    /// The text of the last message, if it had one.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only PostgreSQL needs it"))]
    text: Option<Arc<str>>,
}

impl Hints {
    /// Counts the messages on a channel until the [`Watch`] is dropped.
    pub(in crate::backend) fn watch(self: &Arc<Self>, channel: Arc<str>) -> Watch {
        let messages = lock(&self.by_channel).entry(Arc::clone(&channel)).or_default().subscribe();
        Watch { messages, channel: Channel { hints: Arc::clone(self), name: channel } }
    }

    /// Counts a message on a channel, and wakes the waiters for that channel.
    pub(in crate::backend) fn notify(&self, channel: &str) {
        if let Some(messages) = lock(&self.by_channel).get(channel) {
            count_one(messages, None);
        }
    }

    /// Like [`notify`](Self::notify), and keeps the text of the message.
    #[cfg(feature = "postgres")]
    pub(in crate::backend) fn notify_with_text(&self, channel: &str, text: &str) {
        if let Some(messages) = lock(&self.by_channel).get(channel) {
            count_one(messages, Some(text));
        }
    }

    /// Counts a message on every channel. Call this method when messages may have been lost.
    #[cfg(feature = "postgres")]
    pub(in crate::backend) fn notify_all(&self) {
        lock(&self.by_channel).values().for_each(|messages| count_one(messages, None));
    }

    /// Returns whether any channel is watched.
    #[cfg(feature = "postgres")]
    pub(in crate::backend) fn is_watched(&self) -> bool {
        !lock(&self.by_channel).is_empty()
    }
}

fn count_one(messages: &watch::Sender<Messages>, text: Option<&str>) {
    let text = text.map(Arc::from);
    messages.send_modify(|messages| *messages = Messages { count: messages.count + 1, text });
}

/// A count of the messages on one channel; ends when dropped.
#[derive(Debug)]
pub(in crate::backend) struct Watch {
    messages: watch::Receiver<Messages>,
    /// This field is dropped after the field `messages`. The receiver of this watch is therefore gone when the drop of
    /// this field counts the receivers of the channel.
    channel: Channel,
}

impl Watch {
    pub(in crate::backend) fn channel(&self) -> &Arc<str> {
        &self.channel.name
    }

    /// Returns the number of messages on the channel so far.
    pub(in crate::backend) fn count(&self) -> u64 {
        self.messages.borrow().count
    }

    /// Returns the text of the last message, if it had one.
    #[cfg(feature = "postgres")]
    pub(in crate::backend) fn text(&self) -> Option<Arc<str>> {
        self.messages.borrow().text.clone()
    }

    /// Completes when the number of messages is at least `count`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(in crate::backend) async fn reached(&self, count: u64) {
        // The sender is not dropped before the last watch of its channel, so there is no error.
        let _ = self.messages.clone().wait_for(|messages| messages.count >= count).await;
    }
}

/// The channel of one watch. The count of messages ends when the last watch of the channel is dropped.
#[derive(Debug)]
struct Channel {
    hints: Arc<Hints>,
    name: Arc<str>,
}

impl Drop for Channel {
    fn drop(&mut self) {
        let mut by_channel = lock(&self.hints.by_channel);
        if by_channel.get(&self.name).is_some_and(|messages| messages.receiver_count() == 0) {
            by_channel.remove(&self.name);
        }
    }
}
