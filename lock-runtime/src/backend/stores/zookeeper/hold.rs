//! A contender's node in ZooKeeper: from the request that makes it, through the queue, to the end of the hold.
//!
//! The fencing token is the node's `czxid`, the number of the transaction that created it, for which a majority of
//! the servers has voted. Unlike the sequence in the node's name, it does not begin anew when the lock's node is made
//! again. Because a node has only one `czxid`, a hold is not handed over inside the process.

use std::{
    fmt,
    future::pending,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use ::zookeeper_client as zk;

use super::{
    error::Failure,
    held_node::{Attention, HeldNode},
    names, queue,
    session::Session,
    watches,
};
use crate::{
    LockError, LockKey, OwnerToken,
    backend::{self, BoxFuture, LossNotifier, Releasable, Released, common::inquiry::PAUSE},
    time::clock::{self, Instant},
};

/// The node of one attempt, in one session. Its name is unique to the attempt, so a node found under that name is
/// ours.
pub(super) struct Contender {
    pub(super) session: Arc<Session>,
    /// Counts the node in the session.
    _node: Arc<()>,
    key: LockKey,
    /// The lock's node.
    pub(super) parent: String,
    /// The beginning of the node's name; the server appends the sequence number.
    prefix: String,
    made: OnceLock<Made>,
    /// Whether the node is gone or about to be deleted: the hold must not be relied on any more.
    over: AtomicBool,
    /// Whether a deletion is in doubt: sent, not answered, perhaps applied.
    delete_unanswered: AtomicBool,
    pub(super) attention: Attention,
}

/// The identity of an existing node.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) name: String,
    /// The number of the transaction that created it, which is the fencing token.
    pub(super) czxid: i64,
}

impl Contender {
    pub(super) fn new(session: Arc<Session>, key: &LockKey) -> Arc<Self> {
        Arc::new(Self {
            _node: Arc::clone(&session.nodes),
            session,
            key: key.clone(),
            parent: names::lock(key),
            prefix: names::contender(OwnerToken::random()),
            made: OnceLock::new(),
            over: AtomicBool::new(false),
            delete_unanswered: AtomicBool::new(false),
            attention: Attention::default(),
        })
    }

    pub(super) fn made(&self) -> Option<&Made> {
        self.made.get()
    }

    /// The path to create; the server appends the sequence number.
    pub(super) fn template(&self) -> String {
        format!("{}/{}", self.parent, self.prefix)
    }

    /// Records that the server created the node.
    pub(super) fn was_made(&self, number: zk::CreateSequence, stat: &zk::Stat) {
        let _ = self.made.set(Made { name: format!("{}{number}", self.prefix), czxid: stat.czxid });
    }

    /// The node's path below the session's chroot, once the node is known to exist.
    pub(super) fn path(&self) -> Option<String> {
        self.made().map(|made| format!("{}/{}", self.parent, made.name))
    }

    /// The node's path from the root of the ensemble, once the node is known to exist.
    pub(super) fn absolute_path(&self) -> Option<String> {
        let chroot = self.session.client.path();
        self.path().map(|path| if chroot == "/" { path } else { format!("{chroot}{path}") })
    }

    /// Lists the contenders for the lock: none if the lock's node is gone.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn list(&self) -> Result<Vec<String>, zk::Error> {
        match self.session.answer(self.session.client.list_children(&self.parent)).await {
            Err(zk::Error::NoNode) => Ok(Vec::new()),
            listed => listed,
        }
    }

    /// Checks whether the server created the node although its answer was lost.
    ///
    /// `Ok(false)` is definite: the node does not exist, and no pending request can create it any more.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn find(&self) -> Result<bool, zk::Error> {
        let client = &self.session.client;
        // On the connection that carried the request to create the node, requests are carried out in order. On another
        // one they are once the session has moved there, which happens before the vote on this write. Once it is
        // answered, the server knows everything that was carried out before it.
        self.session.answer(self.session.write_barrier()).await?;
        let children = self.list().await?;
        let Some(name) = children.into_iter().find(|child| child.starts_with(&self.prefix)) else {
            return Ok(false);
        };
        let path = format!("{}/{name}", self.parent);
        let stat = self.session.answer(client.check_stat(&path)).await?;
        let ours = stat.filter(|stat| stat.ephemeral_owner == client.session_id().0);
        if let Some(stat) = ours {
            let _ = self.made.set(Made { name, czxid: stat.czxid });
        }
        Ok(ours.is_some())
    }

    async fn delete(&self) -> Result<Released, Failure> {
        self.over.store(true, Ordering::Release);
        if self.session.lifetime.has_ended() {
            return Ok(Released::NotHeld);
        }
        if self.made().is_none() && !self.find().await.map_err(Failure::of)? {
            return Ok(Released::NotHeld);
        }
        let path = self.path().expect("made or found");
        match self.session.answer(self.session.client.delete(&path, None)).await {
            Ok(()) => Ok(Released::Released),
            // The previous deletion was applied, and its answer was lost.
            Err(zk::Error::NoNode) if self.delete_unanswered.load(Ordering::Acquire) => {
                Ok(Released::Released)
            }
            Err(zk::Error::NoNode) => Ok(Released::NotHeld),
            Err(error) => {
                let failure = Failure::of(error);
                if let Failure::Unknown(_) = failure {
                    self.delete_unanswered.store(true, Ordering::Release);
                }
                Err(failure)
            }
        }
    }

    /// Returns whether another contender is in the queue. If none is, waits until the queue changes, and returns false.
    /// If the session has no room for another watch, waits for a pause instead.
    ///
    /// # Cancel safety
    /// Dropping the future removes the watch.
    async fn followed(&self) -> Result<bool, Failure> {
        let own = self.made().map_or("", |made| &made.name);
        let session = &self.session;
        session.answering().await?;
        let Some(_room) = session.watches.room_for_held(&self.parent) else {
            let followed = queue::has_others(&self.list().await.map_err(Failure::of)?, own);
            if !followed {
                clock::sleep_until(Instant::now() + PAUSE).await;
            }
            return Ok(followed);
        };
        let listed = session.answer(session.client.list_and_watch_children(&self.parent));
        let (children, watcher) = listed.await.map_err(Failure::of)?;
        let followed = queue::has_others(&children, own);
        drop(children);
        if !followed {
            // If the driver is gone, the next request fails.
            let _ = watches::changed(watcher).await;
        }
        Ok(followed)
    }

    /// The number of the hold in the session, once the node is known to exist.
    fn number(&self) -> i64 {
        self.made().map_or(0, |made| made.czxid)
    }

    /// Returns whether the hold must not be relied on any more.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Records that the node was deleted by hand.
    pub(super) fn was_deleted(&self) {
        self.over.store(true, Ordering::Release);
        self.session.lifetime.lose(self.number(), "its node was deleted");
    }

    /// Records that an operator has revoked the grant. The deadline stays: until then, the holder may rely on what it
    /// has begun, and the library keeps the node.
    pub(super) fn was_revoked(&self) {
        self.session.lifetime.revoke(self.number());
    }
}

impl Releasable for Contender {
    fn key(&self) -> &LockKey {
        &self.key
    }

    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(async move {
            let released = match self.delete().await {
                // The node ended with its session.
                Err(Failure::Ended(_)) => Ok(Released::NotHeld),
                Err(failure) => Err(failure.into_error()),
                Ok(released) => Ok(released),
            };
            if released.is_ok() {
                self.session.lifetime.forget(self.number());
            }
            released
        })
    }
}

impl backend::Session for Contender {
    fn valid_until(&self) -> Instant {
        if self.is_over() { Instant::from_nanos(0) } else { self.session.lifetime.valid_until() }
    }

    fn on_loss(self: Arc<Self>, notifier: LossNotifier) {
        let node: Weak<dyn HeldNode> = Arc::<Self>::downgrade(&self);
        self.session.lifetime.register(self.number(), node, notifier);
    }

    fn wanted(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            loop {
                match self.followed().await {
                    Ok(true) => return,
                    Ok(false) => {}
                    Err(Failure::Ended(_)) => pending().await,
                    Err(_) => clock::sleep_until(Instant::now() + PAUSE).await,
                }
            }
        })
    }
}

/// Omits the node's name, because it suffices to release the lock.
impl fmt::Debug for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender")
            .field("key", &self.key)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}
