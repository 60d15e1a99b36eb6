//! A contender's node in ZooKeeper: from the request that makes it, through the queue, to the end of the hold.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use ::zookeeper_client as zk;

use super::{
    error::Failure,
    names,
    session::{InSession, Session},
};
use crate::{
    LockError, LockKey, OwnerToken,
    backend::{self, BoxFuture, LossNotifier, Releasable, Released},
    sync::lock,
    time::clock::Instant,
};

/// One attempt's node. It belongs to one session, and its name to this attempt: what is found under that name is ours.
pub(super) struct Contender {
    session: Arc<Session>,
    key: LockKey,
    /// The lock's node.
    parent: String,
    /// What the name begins with; the server appends a number.
    prefix: String,
    made: OnceLock<Made>,
    /// It is not there any more, or will not be: it must not be relied on.
    over: AtomicBool,
    /// A deletion was sent and not answered: it may have been applied.
    delete_unanswered: AtomicBool,
    watched: AtomicBool,
    /// Whom to tell when it is lost, and the number under which the session knows that.
    held: Mutex<Option<(LossNotifier, u64)>>,
}

/// What is known of a node that exists.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) name: String,
    /// The transaction that made it: the fencing token.
    pub(super) czxid: i64,
}

impl Contender {
    pub(super) fn new(session: Arc<Session>, key: &LockKey) -> Arc<Self> {
        session.node_begins();
        Arc::new(Self {
            session,
            key: key.clone(),
            parent: names::lock(key),
            prefix: names::contender(OwnerToken::random()),
            made: OnceLock::new(),
            over: AtomicBool::new(false),
            delete_unanswered: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            held: Mutex::default(),
        })
    }

    pub(super) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(super) fn parent(&self) -> &str {
        &self.parent
    }

    pub(super) fn made(&self) -> Option<&Made> {
        self.made.get()
    }

    /// Where the server is to make it.
    pub(super) fn template(&self) -> String {
        format!("{}/{}", self.parent, self.prefix)
    }

    /// The server made it.
    pub(super) fn was_made(&self, number: zk::CreateSequence, stat: &zk::Stat) {
        let _ = self.made.set(Made { name: format!("{}{number}", self.prefix), czxid: stat.czxid });
    }

    /// Below the chroot of our session.
    fn path(&self) -> Option<String> {
        self.made().map(|made| format!("{}/{}", self.parent, made.name))
    }

    /// From the root of the ensemble.
    pub(super) fn absolute_path(&self) -> Option<String> {
        let chroot = self.session.client().path();
        self.path().map(|path| if chroot == "/" { path } else { format!("{chroot}{path}") })
    }

    /// Looks whether the server made it although its answer was lost. `Ok(false)` is definite: it is not there, and
    /// the request that could make it is not on its way any more.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn find(&self) -> Result<bool, zk::Error> {
        let client = self.session.client();
        // On the connection on which it was asked for, requests are carried out in their order. On another one they
        // are as soon as the session has moved, which is so before this is voted for; and what was carried out until
        // then, the server knows after it.
        self.session.answer(self.session.write_barrier()).await?;
        let children = match self.session.answer(client.list_children(&self.parent)).await {
            Ok(children) => children,
            Err(zk::Error::NoNode) => return Ok(false),
            Err(error) => return Err(error),
        };
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
        if self.session.has_ended() {
            return Ok(Released::NotHeld);
        }
        if self.made().is_none() && !self.find().await.map_err(Failure::of)? {
            return Ok(Released::NotHeld);
        }
        let path = self.path().expect("made or found");
        match self.session.answer(self.session.client().delete(&path, None)).await {
            Ok(()) => Ok(Released::Released),
            // The one before was applied, and its answer lost.
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

    fn held(&self) -> MutexGuard<'_, Option<(LossNotifier, u64)>> {
        lock(&self.held)
    }
}

impl InSession for Contender {
    fn lost(&self, why: &str) {
        self.over.store(true, Ordering::Release);
        let held = self.held().take();
        if let Some((loss, number)) = held {
            self.session.forget(number);
            loss.notify(why);
        }
    }

    fn watch(self: Arc<Self>) {
        if !self.watched.swap(true, Ordering::AcqRel) {
            tokio::spawn(watch(self));
        }
    }
}

async fn watch(node: Arc<Contender>) {
    let Some(path) = node.path() else { return };
    let session = Arc::clone(&node.session);
    match session.answer(session.client().check_and_watch_stat(&path)).await {
        Ok((Some(_), watcher)) => {
            // It must not keep the session from being closed.
            let node = Arc::downgrade(&node);
            drop(session);
            let event = watcher.changed().await;
            let Some(node) = node.upgrade() else { return };
            if event.event_type == zk::EventType::NodeDeleted {
                node.lost("its node was deleted");
            } else if !node.over.load(Ordering::Acquire) {
                // Its data was changed, or the session is over, which is told elsewhere.
                node.watched.store(false, Ordering::Release);
            }
        }
        Ok((None, _)) => node.lost("its node was deleted"),
        // With the next heartbeat again.
        Err(_) => node.watched.store(false, Ordering::Release),
    }
}

impl Releasable for Contender {
    fn key(&self) -> &LockKey {
        &self.key
    }

    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>> {
        Box::pin(async move {
            let released = match self.delete().await {
                // With the session its nodes end.
                Err(Failure::Ended(_)) => Ok(Released::NotHeld),
                Err(failure) => Err(failure.into_error()),
                Ok(released) => Ok(released),
            };
            if released.is_ok() {
                let held = self.held().take();
                if let Some((_, number)) = held {
                    self.session.forget(number);
                }
            }
            released
        })
    }
}

impl backend::Session for Contender {
    fn valid_until(&self) -> Instant {
        if self.over.load(Ordering::Acquire) { Instant::from_nanos(0) } else { self.session.valid_until() }
    }

    fn on_loss(self: Arc<Self>, loss: LossNotifier) {
        let number = self.session.remember(&(Arc::clone(&self) as Arc<dyn InSession>));
        *self.held() = Some((loss, number));
        if self.over.load(Ordering::Acquire) || self.session.has_ended() {
            self.lost("it was lost before it was handed out");
        }
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        self.session.node_ends();
    }
}

/// Without the name, which is enough to release the lock.
impl fmt::Debug for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender")
            .field("key", &self.key)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}
