//! How a holder learns that an operator has deleted its node or revoked its grant: by a watch, or by reading the node.

use std::sync::{Arc, atomic::Ordering};

use ::zookeeper_client as zk;

use super::{
    held_node::HeldNode,
    hold::Contender,
    record,
    session::Session,
    watches::{self, Room},
};
use crate::{backend::BoxFuture, time::clock::Instant};

impl HeldNode for Contender {
    fn watch(self: Arc<Self>) -> bool {
        let Some(path) = self.path() else { return true };
        if self.attention.watched.load(Ordering::Acquire) {
            return true;
        }
        let Some(room) = self.session.watches.room_for_held(&path) else { return false };
        self.attention.watched.store(true, Ordering::Release);
        tokio::spawn(watch(self, path, room));
        true
    }

    fn read(self: Arc<Self>) -> BoxFuture<'static, bool> {
        Box::pin(async move {
            let Some(path) = self.path() else { return true };
            self.attention.last_read.store(Instant::now().as_nanos(), Ordering::Relaxed);
            match self.session.answer(self.session.client.check_stat(&path)).await {
                Ok(Some(stat)) => is_revoked(&self.session, &path, &stat).await.is_ok_and(|revoked| {
                    if revoked {
                        self.was_revoked();
                    }
                    true
                }),
                Ok(None) => {
                    self.was_deleted();
                    true
                }
                Err(_) => false,
            }
        })
    }

    fn last_read(&self) -> u64 {
        self.attention.last_read.load(Ordering::Relaxed)
    }
}

async fn watch(node: Arc<Contender>, path: String, _room: Room) {
    let session = Arc::clone(&node.session);
    // Neither this task nor a watch may keep the session open.
    let (node, mut session) = (Arc::downgrade(&node), Some(session));
    loop {
        let Some(holder) = node.upgrade() else { return };
        let session = session.take().unwrap_or_else(|| Arc::clone(&holder.session));
        let seen = session.answer(session.client.check_and_watch_stat(&path)).await;
        let Ok((stat, watcher)) = seen else { return holder.is_unwatched() };
        let Some(stat) = stat else { return holder.was_deleted() };
        // Read once the watch exists, so that no later change is missed.
        match is_revoked(&session, &path, &stat).await {
            Ok(true) => return holder.was_revoked(),
            Ok(false) => {}
            Err(_) => return holder.is_unwatched(),
        }
        drop((holder, session));
        let Some(event) = watches::changed(watcher).await else { return };
        let Some(holder) = node.upgrade() else { return };
        match event.event_type {
            zk::EventType::NodeDeleted => return holder.was_deleted(),
            zk::EventType::NodeDataChanged if holder.is_over() => return,
            zk::EventType::NodeDataChanged => {}
            // The session has ended, which is reported elsewhere.
            _ => return holder.is_unwatched(),
        }
    }
}

/// Returns whether the grant of an existing node is revoked.
async fn is_revoked(session: &Session, path: &str, stat: &zk::Stat) -> Result<bool, zk::Error> {
    // The data of a new node are ours.
    if stat.version == 0 {
        return Ok(false);
    }
    match session.answer(session.client.get_data(path)).await {
        Ok((data, _)) => Ok(record::is_revoked(&data)),
        // The node was deleted, of which the watch or the next reading tells; or our user was deprived of its access to
        // the node, which then cannot be revoked.
        Err(zk::Error::NoNode | zk::Error::NoAuth) => Ok(false),
        Err(error) => Err(error),
    }
}

impl Contender {
    /// Records that the node is not watched any more; the next heartbeat tries again.
    fn is_unwatched(&self) {
        self.attention.watched.store(false, Ordering::Release);
    }
}
