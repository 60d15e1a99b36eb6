//! The messages that the nodes send unasked.

use std::sync::Arc;

use redis::{PushInfo, PushKind, Value};

use super::protocol::REVOCATIONS;
use crate::backend::{
    common::{hints::Hints, revocations::Revocations},
    kits::redis::net::Pushes,
};

/// The receivers of the messages of all nodes of one store.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// The waiters, which are notified of releases.
    pub(super) hints: Arc<Hints>,
    /// The holders, which are notified of revocations.
    pub(super) revocations: Revocations,
}

impl Pushes for Inbox {
    fn take(&self, push: &PushInfo) {
        if push.kind == PushKind::Message
            && let Some(Value::BulkString(channel)) = push.data.first()
            && let Ok(channel) = str::from_utf8(channel)
        {
            // Also a channel that ends like this may be that of a lock's releases.
            self.hints.notify(channel);
            if channel.ends_with(REVOCATIONS)
                && let Some(Value::BulkString(stored)) = push.data.get(1)
                && let Ok(stored) = str::from_utf8(stored)
            {
                self.revocations.notify(stored);
            }
        }
    }

    fn hang_up(&self, _: u64) {}
}
