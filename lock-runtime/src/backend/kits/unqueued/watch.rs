//! Waiting for the releases of one lock, over the connections of one waiter.

use std::sync::Arc;

use super::node::Line;
use crate::backend::common::hints::{self, Hints};

/// A subscription to the releases of one lock; ends when dropped.
#[derive(Debug)]
pub(super) struct Watch {
    messages: hints::Watch,
    lines: Vec<Arc<Line>>,
}

impl Watch {
    pub(super) fn begin(hints: &Arc<Hints>, channel: Arc<str>) -> Self {
        Self { messages: hints.watch(channel), lines: Vec::new() }
    }

    /// Subscribes over each of `lines` over which this watch has not subscribed yet. A request that is sent later over
    /// the same connection is executed after the subscription.
    pub(super) fn subscribe_over(&mut self, lines: impl Iterator<Item = Arc<Line>>) {
        for line in lines {
            if !self.lines.iter().any(|other| Arc::ptr_eq(other, &line)) {
                line.subscribe(self.messages.channel());
                self.lines.push(line);
            }
        }
        self.lines.retain(|line| line.connection.is_usable());
    }
}

impl AsRef<hints::Watch> for Watch {
    fn as_ref(&self) -> &hints::Watch {
        &self.messages
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for line in &self.lines {
            line.unsubscribe(self.messages.channel());
        }
    }
}
