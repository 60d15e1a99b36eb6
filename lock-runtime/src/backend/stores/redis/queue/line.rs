//! A connection over which locks are acquired, with its batches and the channels on which this process is notified.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use redis::RedisWrite;
use tokio::sync::oneshot;

use super::{
    super::names::{self, Layout, Process},
    answer::Answer,
    inbox::{Inbox, Notices},
    operation::{self, Asked, MustFollow, Operation, Release},
    scripts,
};
use crate::{
    Label, LockError, LockKey, OwnerToken,
    backend::{
        LeaseId,
        common::cold::cold,
        kits::redis::{
            batch::{Batcher, GroupCommit, SendBatch},
            error::Failure,
            foreign::Foreign,
            net::{Connection, Pushes, Service},
            rights::{no_rights, no_subscription},
        },
    },
    sync::lock,
    time::clock::Instant,
};

/// This process as a participant in the queues of one store.
#[derive(Debug)]
pub(crate) struct Participant {
    inbox: Arc<Inbox>,
    process: Arc<Process>,
    group_commit: GroupCommit,
    /// Whether a server has accepted the scripts from this user.
    scripts_are_known: AtomicBool,
}

impl Participant {
    pub(crate) fn new(group_commit: GroupCommit, layout: Layout) -> Self {
        let inbox = Arc::new(Inbox::new());
        let process = Arc::new(Process::new(inbox.id(), layout));
        Self { inbox, process, group_commit, scripts_are_known: AtomicBool::new(false) }
    }

    /// Returns the same participant, for the connections to another server.
    pub(crate) fn on_another_server(&self) -> Self {
        Self {
            inbox: Arc::clone(&self.inbox),
            process: Arc::clone(&self.process),
            group_commit: self.group_commit,
            scripts_are_known: AtomicBool::new(false),
        }
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Returns the locks that foreign clients use, too.
    pub(crate) fn foreign(&self) -> &Foreign {
        self.inbox.foreign()
    }
}

impl Service for Participant {
    type Line = Line;

    fn pushes(&self) -> Arc<dyn Pushes> {
        Arc::clone(&self.inbox) as Arc<dyn Pushes>
    }

    async fn begin(&self, connection: Arc<Connection>, _: &str) -> Result<Arc<Line>, LockError> {
        // A later server gets a script when a call shows that the server does not know it.
        if !self.scripts_are_known.load(Ordering::Acquire) {
            for script in scripts::usual() {
                connection.call::<redis::Value>(&script.load()).await.map_err(Failure::into_error)?;
            }
            self.scripts_are_known.store(true, Ordering::Release);
        }
        let process = Arc::clone(&self.process);
        let send: Arc<SendBatch<Operation>> = Arc::new(move |connection, operations| {
            Box::pin(operation::send(connection, Arc::clone(&process), operations))
        });
        let batcher = Batcher::start(&connection, self.group_commit, &send);
        Ok(Arc::new(Line {
            connection,
            batcher,
            inbox: Arc::clone(&self.inbox),
            process: Arc::clone(&self.process),
            channels: Mutex::default(),
        }))
    }
}

/// One connection, with its batches and channels.
#[derive(Debug)]
pub(crate) struct Line {
    connection: Arc<Connection>,
    pub(crate) batcher: Batcher<Operation>,
    inbox: Arc<Inbox>,
    process: Arc<Process>,
    /// The subscribed channel of each prefix.
    channels: Mutex<HashMap<String, Arc<str>>>,
}

impl AsRef<Connection> for Line {
    fn as_ref(&self) -> &Connection {
        &self.connection
    }
}

impl Line {
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Acquires a lock in a batch, or, with `polled_at`, polls the place of the owner that is notified at this address.
    /// Returns `None` if the caller has to ask alone, as for a held lock.
    ///
    /// The server does not execute the request after `give_up`.
    ///
    /// # Cancel safety
    /// If the future is dropped, the request may still be applied: the lock may be taken for its owner, or the place
    /// refreshed.
    pub(crate) async fn ask(
        &self,
        (id, label): (LeaseId, Label),
        polled_at: Option<String>,
        give_up: Instant,
    ) -> Result<Option<Answer>, Failure> {
        self.put(|answer| Operation::Ask(Asked { id, label, polled_at, give_up, answer })).await
    }

    /// Releases a grant in a batch, and returns whether it was released; if not, the caller has to release it alone.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release may still be applied.
    pub(crate) async fn release(&self, id: &LeaseId, must_follow: MustFollow) -> Result<bool, Failure> {
        self.put(|answer| Operation::Release(Release { id: id.clone(), must_follow, answer })).await
    }

    async fn put<T>(
        &self,
        operation: impl FnOnce(oneshot::Sender<Result<T, Failure>>) -> Operation,
    ) -> Result<T, Failure> {
        let (answer, answered) = oneshot::channel();
        self.batcher.put(operation(answer))?;
        answered.await.unwrap_or_else(|_| Err(Failure::runtime_gone()))
    }

    /// Subscribes to the channel on which this process is notified about locks under the prefix of `key`, and checks the
    /// user's permissions under the prefix.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn open_channel(&self, key: &LockKey) -> Result<Arc<str>, Failure> {
        let prefix = key.prefix();
        let channel: Arc<str> = names::inbox(prefix, self.inbox.id()).into();
        self.subscribe(prefix, &channel).await?;
        self.check_rights(key, &channel).await?;
        lock(&self.channels).insert(prefix.to_owned(), Arc::clone(&channel));
        Ok(channel)
    }

    async fn subscribe(&self, prefix: &str, channel: &str) -> Result<(), Failure> {
        match self.connection.call::<redis::Value>(redis::cmd("SUBSCRIBE").arg(channel)).await {
            Err(Failure::Refused(error)) if error.is_permanent() => {
                Err(Failure::Refused(no_subscription(error, prefix)))
            }
            answer => answer.map(drop),
        }
    }

    /// Fails if the user lacks permissions under the prefix of `key` that locks need.
    async fn check_rights(&self, key: &LockKey, channel: &str) -> Result<(), Failure> {
        let mut call = scripts::RIGHTS.call_with_room(2, 6, 256);
        let domain = self.process.domain(key);
        call.write_arg_fmt(domain.fence());
        call.write_arg_fmt(domain.queues());
        call.arg(channel);
        let sent = Instant::now();
        let (time, refused): (u64, Vec<String>) = self.connection.run(&scripts::RIGHTS, &call).await?;
        self.connection.clock().learn(sent, Instant::now(), time);
        if refused.is_empty() {
            return Ok(());
        }
        Err(Failure::Refused(no_rights(&refused, key.prefix())))
    }

    /// Returns the number under which a waiter is notified.
    fn number(&self, owner: OwnerToken) -> u64 {
        self.inbox.number(owner)
    }

    /// Opens the mailbox of a waiter, which closes when this connection is gone.
    fn listen(&self, owner: OwnerToken) -> Notices {
        let notices = Inbox::listen(&self.inbox, self.number(owner), self.connection.id());
        if !self.connection.is_usable() {
            // The connection was given up before the mailbox was open, and so has not closed it.
            self.inbox.hang_up(self.connection.id());
        }
        notices
    }
}

/// The number and channel by which a waiter is notified of its grant.
pub(crate) struct Address {
    pub(crate) line: Arc<Line>,
    owner: OwnerToken,
    channel: Arc<str>,
}

impl Address {
    /// Returns the address of a waiter for a lock. The first address under a prefix opens its channel.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn on(line: Arc<Line>, key: &LockKey, owner: OwnerToken) -> Result<Self, Failure> {
        let open = lock(&line.channels).get(key.prefix()).map(Arc::clone);
        let channel = match open {
            Some(channel) => channel,
            None => cold(line.open_channel(key)).await?,
        };
        Ok(Self { line, owner, channel })
    }

    pub(crate) fn listen(&self) -> Notices {
        self.line.listen(self.owner)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.line.number(self.owner), self.channel)
    }
}
