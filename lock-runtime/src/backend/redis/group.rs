//! Group commit: what is due while a call is under way shares the next round trip.
//!
//! A call that finds the connection idle is made at once by its caller. Others are put together: one script call for
//! all acquisitions and one for all releases that have come meanwhile. They do only what is simple, locks that are free
//! and that nobody waits for; the rest is answered with «take the other way», and its caller asks again alone.
//!
//! Groups are sent one after the other, by a task of their own, so a caller that is not polled holds up nobody. An
//! operation that is put behind another one is executed after it.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use redis::{Cmd, RedisWrite};
use tokio::sync::{mpsc, oneshot};

use super::{
    config::GroupCommit,
    connection::Connection,
    error::{self, Failure},
    names, scripts,
};
use crate::{LockKey, OwnerToken, backend::LeaseId};

/// So many operations go into one call; more would hold up the server for too long.
const MAX_GROUP: usize = 128;

/// The operations of one connection that wait for the next round trip.
#[derive(Debug)]
pub(super) struct Group {
    operations: mpsc::UnboundedSender<Operation>,
    when: GroupCommit,
    /// Calls that are made alone, now.
    alone: AtomicUsize,
    /// A group is under way.
    under_way: Arc<AtomicBool>,
}

#[derive(Debug)]
enum Operation {
    Acquire(Acquisition),
    Release(Release),
}

#[derive(Debug)]
struct Acquisition {
    key: LockKey,
    owner: OwnerToken,
    ttl_ms: u64,
    answer: oneshot::Sender<Result<Option<u64>, Failure>>,
}

#[derive(Debug)]
struct Release {
    key: LockKey,
    owner: OwnerToken,
    fence: u64,
    behind: Behind,
    answer: oneshot::Sender<Result<bool, Failure>>,
}

/// What a release must be executed after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// An acquisition that was sent over this connection and not answered: it is of use only here, however late.
    Unanswered,
    /// Nothing: the grant was seen, and any connection will do.
    Nothing,
}

impl Group {
    /// Starts the task; `connection` is what it sends over.
    pub(super) fn start(connection: Weak<Connection>, process: String, when: GroupCommit) -> Self {
        let (operations, due) = mpsc::unbounded_channel();
        let under_way = Arc::new(AtomicBool::new(false));
        tokio::spawn(send_groups(connection, process, due, Arc::clone(&under_way)));
        Self { operations, when, alone: AtomicUsize::new(0), under_way }
    }

    /// Whether to go with the group: unless it is set otherwise, while another call is under way.
    pub(super) fn is_due(&self) -> bool {
        match self.when {
            GroupCommit::Auto => {
                self.under_way.load(Ordering::Acquire) || self.alone.load(Ordering::Acquire) > 0
            }
            GroupCommit::Always => true,
            GroupCommit::Never => false,
        }
    }

    /// Counts a call that is made alone, until the answer is dropped.
    pub(super) fn alone(&self) -> Alone<'_> {
        self.alone.fetch_add(1, Ordering::AcqRel);
        Alone(self)
    }

    /// The fence, or none when the lock is not simply free.
    ///
    /// # Cancel safety
    /// Dropped, the acquisition may still be applied.
    pub(super) async fn acquire(
        &self,
        key: &LockKey,
        owner: OwnerToken,
        ttl_ms: u64,
    ) -> Result<Option<u64>, Failure> {
        let (answer, answered) = oneshot::channel();
        let acquisition = Acquisition { key: key.clone(), owner, ttl_ms, answer };
        self.put(Operation::Acquire(acquisition), answered).await
    }

    /// Whether this very grant was released; not so when the lock is not simply ours.
    ///
    /// # Cancel safety
    /// Dropped, the release may still be applied.
    pub(super) async fn release(&self, id: &LeaseId, behind: Behind) -> Result<bool, Failure> {
        let (answer, answered) = oneshot::channel();
        let release =
            Release { key: id.key.clone(), owner: id.owner, fence: id.token.micros(), behind, answer };
        self.put(Operation::Release(release), answered).await
    }

    async fn put<T>(
        &self,
        operation: Operation,
        answered: oneshot::Receiver<Result<T, Failure>>,
    ) -> Result<T, Failure> {
        // Without its task the runtime is gone, and with it the connection.
        self.operations.send(operation).map_err(|_| Failure::runtime_gone())?;
        answered.await.unwrap_or_else(|_| Err(Failure::runtime_gone()))
    }
}

/// A call that is made alone.
pub(super) struct Alone<'a>(&'a Group);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.alone.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The task: ends with its connection.
async fn send_groups(
    connection: Weak<Connection>,
    process: String,
    mut due: mpsc::UnboundedReceiver<Operation>,
    under_way: Arc<AtomicBool>,
) {
    let mut operations = Vec::with_capacity(MAX_GROUP);
    loop {
        if due.is_empty() {
            under_way.store(false, Ordering::Release);
        }
        if due.recv_many(&mut operations, MAX_GROUP).await == 0 {
            return;
        }
        under_way.store(true, Ordering::Release);
        let Some(connection) = connection.upgrade() else { return };
        let (mut acquisitions, mut releases) = (Vec::new(), Vec::new());
        for operation in operations.drain(..) {
            match operation {
                Operation::Acquire(acquisition) => acquisitions.push(acquisition),
                Operation::Release(release) => releases.push(release),
            }
        }
        // Both are on their way before one is answered; acquisitions first, because a release may be of one of them.
        tokio::join!(
            biased;
            acquire(&connection, &process, acquisitions),
            release(&connection, &process, releases),
        );
    }
}

async fn acquire(connection: &Connection, process: &str, mut rest: Vec<Acquisition>) {
    loop {
        // Their callers are gone, and nothing was sent.
        rest.retain(|one| !one.answer.is_closed());
        if !connection.is_usable() {
            return tell(rest.into_iter().map(|one| one.answer), Err(Failure::not_sent()));
        }
        let Some(first) = rest.first() else { return };
        let prefix = first.key.prefix().to_owned();
        let (group, others) = rest.into_iter().partition::<Vec<_>, _>(|one| one.key.prefix() == prefix);
        rest = others;
        let mut call = begin(&scripts::ACQUIRE_GROUP, group.len() + 1);
        call.write_arg_fmt(names::fence(&prefix));
        for one in &group {
            call.arg(one.key.stored());
        }
        call.arg(&prefix);
        call.write_arg_fmt(format_args!("{process}:"));
        for one in &group {
            call.write_arg_fmt(names::token(one.owner));
            call.arg(one.ttl_ms);
        }
        let answers = connection.run::<Vec<u64>>(&scripts::ACQUIRE_GROUP, &call).await;
        let answers = answers.and_then(|answers| {
            let (fence, refused) = answers.split_first().ok_or_else(unexpected)?;
            let mut granted = vec![Some(*fence); group.len()];
            refuse(&mut granted, refused, None)?;
            Ok(granted)
        });
        tell(group.into_iter().map(|one| one.answer), answers);
    }
}

async fn release(connection: &Connection, process: &str, mut rest: Vec<Release>) {
    loop {
        if !connection.is_usable() {
            let (behind, others) =
                rest.into_iter().partition::<Vec<_>, _>(|one| one.behind == Behind::Unanswered);
            tell(others.into_iter().map(|one| one.answer), Err(Failure::not_sent()));
            rest = behind;
        }
        let Some(first) = rest.first() else { return };
        let prefix = first.key.prefix().to_owned();
        let (group, others) = rest.into_iter().partition::<Vec<_>, _>(|one| one.key.prefix() == prefix);
        rest = others;
        let mut call = begin(&scripts::RELEASE_GROUP, group.len());
        for one in &group {
            call.arg(one.key.stored());
        }
        call.arg(&prefix);
        for one in &group {
            call.write_arg_fmt(names::grant(process, one.owner, one.fence));
        }
        let answers = connection.run::<Vec<u64>>(&scripts::RELEASE_GROUP, &call).await;
        let answers = answers.and_then(|refused| {
            let mut released = vec![true; group.len()];
            refuse(&mut released, &refused, false)?;
            Ok(released)
        });
        tell(group.into_iter().map(|one| one.answer), answers);
    }
}

fn begin(script: &scripts::Script, keys: usize) -> Cmd {
    script.call_with_room(keys, 6 + 2 * keys, 128 + 160 * keys)
}

/// Marks the answers of those that a script names, by their numbers from 1.
fn refuse<T>(answers: &mut [T], refused: &[u64], refusal: T) -> Result<(), Failure>
where
    T: Copy,
{
    for number in refused {
        let place = usize::try_from(*number).ok().and_then(|number| number.checked_sub(1));
        *place.and_then(|place| answers.get_mut(place)).ok_or_else(unexpected)? = refusal;
    }
    Ok(())
}

fn unexpected() -> Failure {
    Failure::Refused(error::unexpected("a group of calls"))
}

/// Gives each caller its answer. One that is gone cleans up by itself.
fn tell<T>(
    callers: impl Iterator<Item = oneshot::Sender<Result<T, Failure>>>,
    answers: Result<Vec<T>, Failure>,
) {
    match answers {
        Ok(answers) => {
            for (caller, answer) in callers.zip(answers) {
                let _ = caller.send(Ok(answer));
            }
        }
        Err(failure) => {
            for caller in callers {
                let _ = caller.send(Err(failure.clone()));
            }
        }
    }
}
