//! One attempt at a lock: the node of our contender, its place in the queue, and the wait for the contender ahead.
//!
//! A process has at most one contender for a lock. Therefore, a crash leaves only one node, and a process with more
//! tasks gets the lock no more often than others.
//!
//! If an attempt is given up or unpolled, or its answer is lost, its node is found by its name. The node's removal is
//! repeated in the background until the servers confirm the removal or the session has ended. Otherwise, the session
//! would keep the node at the head of the queue for as long as the process lives.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use ::zookeeper_client as zk;
use tokio::sync::watch;

use super::{
    error::Failure,
    hold::Contender,
    queue::{self, Place},
    record,
    session::{self, Session, State},
    watches,
};
use crate::{
    FencingToken, LockError,
    backend::{Acquire, Acquired, Grant, Held},
    sync::lock,
    time::{
        backoff::backoff,
        clock::{self, Instant},
    },
};

/// Pause before a waiter checks the queue again if its session has no room for another watch.
const UNWATCHED_PAUSE: Duration = Duration::from_secs(1);

/// How an attempt ended without an error.
pub(super) enum Ended {
    With(Acquired),
    /// The node or its session is gone; a new attempt begins at the end of the queue.
    Gone,
}

/// An attempt, from before its first request until the grant is returned. If the attempt is dropped earlier, its node
/// is removed in the background.
pub(super) struct Attempt<'a> {
    request: &'a Acquire,
    /// What the node states of this client.
    record: &'a str,
    contender: Arc<Contender>,
    /// Whether a node of this attempt may exist in the store.
    open: bool,
    /// A moment at or before the sending of the request that showed the node's current place.
    since: Instant,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(request: &'a Acquire, record: &'a str, session: Arc<Session>) -> Self {
        let contender = Contender::new(session, &request.key);
        Self { request, record, contender, open: false, since: Instant::now() }
    }

    pub(super) async fn run(mut self) -> Result<Ended, LockError> {
        match self.contend().await {
            Err(Failure::Ended(_)) => Ok(self.gone()),
            ended => ended.map_err(Failure::into_error),
        }
    }

    async fn contend(&mut self) -> Result<Ended, Failure> {
        // Subscribes before the first request, so that no change of the session's state is missed.
        let states = self.contender.session.states();
        let Some(children) = self.join().await? else { return Ok(self.gone()) };
        if queue::is_used_up(self.name()) {
            return self.use_up().await;
        }
        self.wait(children, states).await
    }

    /// Creates the node and lists the contenders, in one round trip.
    ///
    /// Returns `None` if the node definitely does not exist; a new attempt has to request another node.
    async fn join(&mut self) -> Result<Option<Vec<String>>, Failure> {
        let session = Arc::clone(&self.contender.session);
        let client = &session.client;
        let template = self.contender.template();
        let options = zk::CreateMode::EphemeralSequential.with_acls(session.acls);
        loop {
            // Sends nothing while the servers are silent: a disconnected driver would queue the request and send it
            // later, even if the caller has given up by then.
            session.answering().await?;
            self.open = true;
            let sent = Instant::now();
            // Both calls send their requests at once, before they are polled; the server executes the requests in this
            // order.
            let create = client.create(&template, self.record.as_bytes(), &options);
            let list = client.list_children(&self.contender.parent);
            let (created, listed) = tokio::join!(session.answer(create), session.answer(list));
            match created {
                Ok((stat, number)) => self.contender.was_made(number, &stat),
                Err(zk::Error::NoNode) => {
                    self.open = false;
                    self.make_parent(&session).await?;
                    continue;
                }
                Err(error) => match Failure::of(error) {
                    Failure::Unknown(_) => {
                        if !self.contender.find().await.map_err(Failure::of)? {
                            return Ok(None);
                        }
                    }
                    failure => {
                        self.open = false;
                        return Err(failure);
                    }
                },
            }
            session.wrote(sent);
            // The list may contain the node even if the answer to its creation was lost.
            return match listed {
                Ok(children) if children.iter().any(|child| child == self.name()) => Ok(Some(children)),
                _ => self.list().await.map(Some),
            };
        }
    }

    /// The name of our node; empty until the node is known to exist.
    fn name(&self) -> &str {
        self.contender.made().map_or("", |made| &made.name)
    }

    /// Creates the lock's node, and in the same transaction a child that it deletes again.
    ///
    /// The lock's node is a container: the servers remove it after it has been empty for a while, but only if it has
    /// ever had a child. The client that creates the container may fail before it adds its contender.
    async fn make_parent(&self, session: &Session) -> Result<(), Failure> {
        let (client, path) = (&session.client, &self.contender.parent);
        let child = format!("{path}/made");
        let mut all = client.new_multi_writer();
        all.add_create(path, b"", &zk::CreateMode::Container.with_acls(session.acls))
            .and_then(|()| all.add_create(&child, b"", &zk::CreateMode::Persistent.with_acls(session.acls)))
            .and_then(|()| all.add_delete(&child, None))
            .map_err(Failure::of)?;
        let made = all.commit();
        match session.answer(async { made.await.map_err(zk::Error::from) }).await {
            Ok(_) | Err(zk::Error::NodeExists) => Ok(()),
            Err(error) => Err(Failure::of(error)),
        }
    }

    async fn list(&self) -> Result<Vec<String>, Failure> {
        // Lists nothing while the servers are silent: even the first place is worthless while the session may have
        // ended.
        self.contender.session.answering().await?;
        self.contender.list().await.map_err(Failure::of)
    }

    fn place<'c>(&self, children: &'c [String]) -> Place<'c> {
        queue::place(children, self.name(), |_| true)
    }

    /// Leaves the queue, whose sequence numbers are used up, and deletes the lock's node once the node has no children.
    /// In a new node, the numbers begin anew.
    async fn use_up(&mut self) -> Result<Ended, Failure> {
        let (busy, session) = (self.busy(None).await, Arc::clone(&self.contender.session));
        for attempt in 0.. {
            match session.answer(session.client.delete(&self.contender.parent, None)).await {
                Ok(()) | Err(zk::Error::NoNode) => return Ok(Ended::Gone),
                Err(zk::Error::NotEmpty) => {}
                Err(error) => return Err(Failure::of(error)),
            }
            let end = self.request.wait.end();
            if end.has_passed() {
                break;
            }
            self.request.progress.contended();
            clock::sleep_until((Instant::now() + backoff(attempt)).min(end)).await;
        }
        Ok(busy)
    }

    /// Waits until no contender is ahead of us, or the wait is over.
    async fn wait(
        &mut self,
        mut children: Vec<String>,
        mut states: watch::Receiver<State>,
    ) -> Result<Ended, Failure> {
        let end = self.request.wait.end();
        // What the watch of the node ahead has told of the holder.
        let holder = Mutex::new(None);
        loop {
            let before = match self.place(&children) {
                Place::First => return Ok(self.granted()),
                Place::Gone => return Ok(self.gone()),
                Place::Behind(before) => before.to_owned(),
            };
            let is_holder = queue::place(&children, &before, |_| true) == Place::First;
            lock(&holder).take_if(|(name, _)| *name != before);
            // Frees the list, which may be long, before the wait.
            drop(children);
            self.request.progress.contended();
            if end.has_passed() {
                let holder = lock(&holder).take();
                return Ok(self.busy(holder.map(|(_, holder)| holder)).await);
            }
            let found = |found: record::Contender| {
                if is_holder {
                    *lock(&holder) = Some((before.clone(), found));
                }
            };
            let outcome = tokio::select! {
                biased;
                left = self.left(&before, found) => left,
                () = self.heard_again(&mut states) => Ok(()),
                () = clock::sleep_until(end) => Ok(()),
            };
            children = self.look(outcome, end).await?;
        }
    }

    /// Lists the contenders. In-doubt failures, `last` included, are retried until `end`.
    ///
    /// A place lasts as long as its session, so an outage that the session survives costs nothing.
    async fn look(&mut self, mut last: Result<(), Failure>, end: Instant) -> Result<Vec<String>, Failure> {
        let mut failures = 0;
        loop {
            let looked_at = Instant::now();
            let listed = match last {
                Ok(()) => self.list().await,
                Err(failure) => Err(failure),
            };
            match listed {
                Ok(children) => {
                    self.since = looked_at;
                    return Ok(children);
                }
                Err(Failure::Unknown(error)) if !end.has_passed() => {
                    self.request.progress.failed(&error);
                    tracing::debug!(key = %self.request.key, %error, "checking the queue again");
                    clock::sleep_until((Instant::now() + backoff(failures)).min(end)).await;
                    failures += 1;
                    last = Ok(());
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Completes when the contender `before` us has left the queue, or its node has changed in another way. Without
    /// room for a watch, completes after a pause. Passes the contender to `found` if there is a watch.
    async fn left(&self, before: &str, found: impl FnOnce(record::Contender)) -> Result<(), Failure> {
        let session = &self.contender.session;
        let path = format!("{}/{before}", self.contender.parent);
        let Some(_room) = session.watches.room_for_ahead(&path) else {
            // Not `Progress::sleep_until`: an unpolled waiter has to leave, because it may be the first by now.
            clock::sleep_until(Instant::now() + UNWATCHED_PAUSE).await;
            return Ok(());
        };
        match session.answer(session.client.get_and_watch_data(&path)).await {
            Ok((data, stat, watcher)) => {
                found(record::Contender { path, data: Some(data), stat });
                // If the driver is gone, the caller learns from its next request.
                let _ = watches::changed(watcher).await;
                Ok(())
            }
            Err(zk::Error::NoNode) => Ok(()),
            Err(error) => Err(Failure::of(error)),
        }
    }

    /// Completes when the servers answer again, or the session has ended. The caller then has to check the queue.
    async fn heard_again(&self, states: &mut watch::Receiver<State>) {
        while states.changed().await.is_ok() {
            match *states.borrow_and_update() {
                State::Suspect => self.request.progress.failed(&session::silent()),
                State::Answering | State::Ended => return,
            }
        }
    }

    fn granted(&mut self) -> Ended {
        self.open = false;
        let number = self.contender.made().map_or(0, |made| made.czxid);
        let token = FencingToken::from_number(number.cast_unsigned());
        let held = Held::session(Arc::<Contender>::clone(&self.contender), self.since);
        Ended::With(Acquired::Granted(Grant::new(token, held)))
    }

    fn gone(&mut self) -> Ended {
        self.open = false;
        Ended::Gone
    }

    /// Leaves the queue and waits for the confirmation. Without a confirmation, the release is repeated in the
    /// background.
    async fn busy(&mut self, holder: Option<record::Contender>) -> Ended {
        use crate::backend::Releasable;
        if self.contender.release().await.is_ok() {
            self.open = false;
        }
        Ended::With(match holder {
            Some(holder) => Acquired::busy_with(holder.holder()),
            None => Acquired::busy(None),
        })
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.open {
            // The clean-up has no deadline, because the node lives as long as its session.
            self.request.cleanup.release_later(Arc::<Contender>::clone(&self.contender), Instant::FAR_FUTURE);
        }
    }
}

/// Returns the error of an acquisition whose nodes keep vanishing, or whose node vanished at the end of the wait.
pub(super) fn gone() -> LockError {
    LockError::backend("the place in ZooKeeper's queue was lost: the session ended, or the node was removed")
}
