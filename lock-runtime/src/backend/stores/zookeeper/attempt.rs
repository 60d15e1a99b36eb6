//! One attempt at a lock: a node of our own, its place among the others, and the wait for the one before it.

use std::sync::Arc;

use ::zookeeper_client as zk;
use tokio::sync::watch;

use super::{
    error::Failure,
    hold::Contender,
    names,
    queue::{self, Place},
    session::{self, Session, State},
};
use crate::{
    FencingToken, LockError, LockErrorKind,
    backend::{Acquire, Acquired, Grant, Held, Wait},
    time::{
        backoff::backoff,
        clock::{self, Instant},
    },
};

/// How an attempt ended without an error.
pub(super) enum Ended {
    With(Acquired),
    /// The node is gone, or its session; a new attempt begins at the end of the queue.
    Gone,
}

/// From before the first byte until the grant is handed on; dropped earlier, the node is removed in the background.
pub(super) struct Attempt<'a> {
    request: &'a Acquire,
    contender: Arc<Contender>,
    /// Something may be on the server.
    open: bool,
    /// Before the request was sent after which the node stood where it stands.
    since: Instant,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(request: &'a Acquire, session: Arc<Session>) -> Self {
        let contender = Contender::new(session, &request.key);
        Self { request, contender, open: false, since: Instant::now() }
    }

    pub(super) async fn run(mut self) -> Result<Ended, LockError> {
        match self.contend().await {
            Err(Failure::Ended(_)) => Ok(self.gone()),
            ended => ended.map_err(Failure::into_error),
        }
    }

    async fn contend(&mut self) -> Result<Ended, Failure> {
        // From before the first question on, so that no change is missed.
        let states = self.contender.session().states();
        let Some(children) = self.join().await? else { return Ok(self.gone()) };
        if queue::is_used_up(self.name()) {
            return self.use_up().await;
        }
        if self.request.wait == Wait::No {
            return Ok(self.try_once(&children).await);
        }
        self.wait(children, states).await
    }

    /// Makes the node and looks who is there, in one round trip. None when the node surely does not exist and has to
    /// be asked for anew.
    async fn join(&mut self) -> Result<Option<Vec<String>>, Failure> {
        let session = Arc::clone(self.contender.session());
        let client = session.client();
        let template = self.contender.template();
        let data = names::process();
        let options = zk::CreateMode::EphemeralSequential.with_acls(session.acls());
        loop {
            // What is sent without a connection stands in the queue when it comes, whether it is still wanted or not.
            session.answering().await?;
            self.open = true;
            let sent = Instant::now();
            // Both are on their way when they are called; the server carries them out in this order.
            let create = client.create(&template, data.as_bytes(), &options);
            let list = client.list_children(self.contender.parent());
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
            // A node that was found may be older than the list.
            return match listed {
                Ok(children) if children.iter().any(|child| child == self.name()) => Ok(Some(children)),
                _ => self.list().await.map(Some),
            };
        }
    }

    /// Of our node; nothing while it is not known to have been made.
    fn name(&self) -> &str {
        self.contender.made().map_or("", |made| &made.name)
    }

    /// A lock's own node goes by itself when it has been empty for a while, at any time; but not before it ever had a
    /// child. So it gets one at once: the client that makes it may not come to make one of its own.
    async fn make_parent(&self, session: &Session) -> Result<(), Failure> {
        let (client, path) = (session.client(), self.contender.parent());
        let child = format!("{path}/made");
        let mut all = client.new_multi_writer();
        all.add_create(path, b"", &zk::CreateMode::Container.with_acls(session.acls()))
            .and_then(|()| all.add_create(&child, b"", &zk::CreateMode::Persistent.with_acls(session.acls())))
            .and_then(|()| all.add_delete(&child, None))
            .map_err(Failure::of)?;
        let made = all.commit();
        match session.answer(async { made.await.map_err(zk::Error::from) }).await {
            Ok(_) | Err(zk::Error::NodeExists) => Ok(()),
            Err(error) => Err(Failure::of(error)),
        }
    }

    async fn list(&self) -> Result<Vec<String>, Failure> {
        let session = self.contender.session();
        // Nor would it help to be first while the session is not to be relied on.
        session.answering().await?;
        match session.answer(session.client().list_children(self.contender.parent())).await {
            // With the lock's node, ours is gone.
            Err(zk::Error::NoNode) => Ok(Vec::new()),
            listed => listed.map_err(Failure::of),
        }
    }

    fn place<'c>(&self, children: &'c [String]) -> Place<'c> {
        queue::place(children, self.name(), |_| true)
    }

    /// There are no more numbers for contenders. They begin anew with the lock's node, once it has no more children.
    async fn use_up(&mut self) -> Result<Ended, Failure> {
        let (busy, session) = (self.busy().await, Arc::clone(self.contender.session()));
        for attempt in 0.. {
            match session.answer(session.client().delete(self.contender.parent(), None)).await {
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

    async fn try_once(&mut self, children: &[String]) -> Ended {
        match self.place(children) {
            Place::First => self.granted(),
            Place::Gone => self.gone(),
            Place::Behind(_) => self.busy().await,
        }
    }

    /// Waits until no contender is before us.
    async fn wait(
        &mut self,
        mut children: Vec<String>,
        mut states: watch::Receiver<State>,
    ) -> Result<Ended, Failure> {
        let end = self.request.wait.end();
        loop {
            let before = match self.place(&children) {
                Place::First => return Ok(self.granted()),
                Place::Gone => return Ok(self.gone()),
                Place::Behind(before) => before.to_owned(),
            };
            // They may be many, and the wait long.
            drop(children);
            self.request.progress.contended();
            if end.has_passed() {
                return Ok(self.busy().await);
            }
            let outcome = tokio::select! {
                biased;
                left = self.left(&before) => left,
                () = self.heard_again(&mut states) => Ok(()),
                () = clock::sleep_until(end) => Ok(()),
            };
            children = self.look(outcome, end).await?;
        }
    }

    /// Looks who is there, after what was heard last. The place lasts as long as the session, so an outage that is
    /// shorter costs nothing.
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
                    tracing::debug!(key = %self.request.key, %error, "looking again");
                    clock::sleep_until((Instant::now() + backoff(failures)).min(end)).await;
                    failures += 1;
                    last = Ok(());
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Completes when the contender `before` us has left, or anything else happened to its node.
    async fn left(&self, before: &str) -> Result<(), Failure> {
        let session = self.contender.session();
        let path = format!("{}/{before}", self.contender.parent());
        match session.answer(session.client().get_and_watch_data(&path)).await {
            Ok((_, _, watcher)) => {
                watcher.changed().await;
                Ok(())
            }
            Err(zk::Error::NoNode) => Ok(()),
            Err(error) => Err(Failure::of(error)),
        }
    }

    /// Completes when the servers answer again, or never will: a look is due.
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

    /// Leaves the queue, and waits for that; what cannot be confirmed is repeated in the background.
    async fn busy(&mut self) -> Ended {
        use crate::backend::Releasable;
        if self.contender.release().await.is_ok() {
            self.open = false;
        }
        Ended::With(Acquired::busy(None))
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.open {
            // As long as the session lives, its node does.
            self.request.cleanup.release_later(Arc::<Contender>::clone(&self.contender), Instant::FAR_FUTURE);
        }
    }
}

/// The error of an acquisition whose nodes vanish again and again, or at the end of the wait.
pub(super) fn gone() -> LockError {
    LockError::new(
        LockErrorKind::Backend,
        "the place in ZooKeeper's queue was lost: the session ended, or the node was removed",
    )
}
