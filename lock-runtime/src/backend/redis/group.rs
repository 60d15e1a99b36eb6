//! Group commit: what is due while many calls are under way shares the next round trip.
//!
//! A call that finds the connection idle, or few calls on it, is made at once by its caller. Others are put together:
//! for each prefix one script call for all acquisitions, one for all places in queues that are to be refreshed, and one
//! for all releases that have come meanwhile. Acquisitions and releases in a group do only what is simple, locks that are
//! free and that nobody waits for; the rest is answered with «take the other way», and its caller asks again alone.
//!
//! Groups are sent by tasks of their own, so a caller that is not polled holds up nobody: two, so that the server has
//! one to work on while the answers of the other are given out. The next group does not wait for the answers of one that
//! is full: it would not grow meanwhile. An operation that is put behind another one is executed after it.

use std::{
    future::{Future, poll_fn},
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use redis::{Cmd, FromRedisValue, RedisWrite};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    task::{unconstrained, yield_now},
};

use super::{
    answer::{Answer, Told},
    config::GroupCommit,
    error::{self, Failure},
    names,
    scripts::{self, Script},
    server_clock::ServerClock,
};
use crate::{
    LockKey, OwnerToken,
    backend::{BoxFuture, LeaseId},
    time::clock::Instant,
};

/// So many operations go into one call; more would hold up the server for too long.
const MAX_GROUP: usize = 128;
/// So many calls are made alone at the same time before a group is begun: of fewer it saves nothing, and they would
/// wait for each other.
const FEW: usize = 8;
/// So many groups are under way at the same time, beside those that are full.
const GROUPS: usize = 2;

/// A connection, as far as groups are sent over it.
pub(super) trait Carrier: Send + Sync + 'static {
    /// Whether new calls may use it.
    fn is_usable(&self) -> bool;

    /// The server's clock.
    fn clock(&self) -> &ServerClock;

    /// Runs a script; sends its text where the server does not know it.
    fn run<T: FromRedisValue + Send>(
        &self,
        script: &Script,
        call: &Cmd,
    ) -> impl Future<Output = Result<T, Failure>> + Send;

    /// Runs a script, unless the server does not know it: it does afterwards.
    fn run_once<T: FromRedisValue + Send>(
        &self,
        script: &Script,
        call: &Cmd,
    ) -> impl Future<Output = Result<Option<T>, Failure>> + Send;
}

/// The operations of one connection that wait for the next round trip.
#[derive(Debug)]
pub(super) struct Group {
    operations: mpsc::UnboundedSender<Operation>,
    when: GroupCommit,
    /// Calls that are made alone, now.
    alone: AtomicUsize,
    /// Groups that are under way.
    under_way: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum Operation {
    Acquire(Asked<Acquisition, Option<u64>>),
    Look(Asked<Look, Option<Answer>>),
    Release(Release),
}

/// What is asked for, and until when: from then on its caller does not wait for the answer any more.
#[derive(Debug)]
struct Asked<W, A> {
    what: W,
    give_up: Instant,
    answer: oneshot::Sender<Result<A, Failure>>,
}

#[derive(Debug)]
struct Acquisition {
    key: LockKey,
    owner: OwnerToken,
    ttl_ms: u64,
}

/// What has become of a place in a queue.
#[derive(Debug)]
struct Look {
    key: LockKey,
    owner: OwnerToken,
    ttl_ms: u64,
    /// Where its owner is told.
    address: String,
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
    /// Starts the tasks; `connection` is what they send over.
    pub(super) fn start<C: Carrier>(connection: &Weak<C>, process: &str, when: GroupCommit) -> Self {
        let (operations, due) = mpsc::unbounded_channel();
        let (due, process) = (Arc::new(Mutex::new(due)), Arc::from(process));
        let under_way = Arc::new(AtomicUsize::new(0));
        for _ in 0..GROUPS {
            let (due, process, under_way) = (Arc::clone(&due), Arc::clone(&process), Arc::clone(&under_way));
            tokio::spawn(send_groups(Weak::clone(connection), process, due, under_way));
        }
        Self { operations, when, alone: AtomicUsize::new(0), under_way }
    }

    /// Whether to go with the group: unless it is set otherwise, while another one is under way, or many calls are.
    pub(super) fn is_due(&self) -> bool {
        match self.when {
            GroupCommit::Auto => {
                self.under_way.load(Ordering::Acquire) > 0 || self.alone.load(Ordering::Acquire) >= FEW
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

    /// The fence, or none when the lock is not simply free. The server does not execute it after `give_up`.
    ///
    /// # Cancel safety
    /// Dropped, the acquisition may still be applied.
    pub(super) async fn acquire(
        &self,
        key: &LockKey,
        owner: OwnerToken,
        ttl_ms: u64,
        give_up: Instant,
    ) -> Result<Option<u64>, Failure> {
        let (answer, answered) = oneshot::channel();
        let what = Acquisition { key: key.clone(), owner, ttl_ms };
        self.put(Operation::Acquire(Asked { what, give_up, answer }), answered).await
    }

    /// What has become of a place; none when that has to be asked for alone. The server does not execute it after
    /// `give_up`.
    ///
    /// # Cancel safety
    /// Dropped, the place may still be refreshed, and the lock taken for its owner.
    pub(super) async fn look(
        &self,
        key: &LockKey,
        owner: OwnerToken,
        ttl_ms: u64,
        address: String,
        give_up: Instant,
    ) -> Result<Option<Answer>, Failure> {
        let (answer, answered) = oneshot::channel();
        let what = Look { key: key.clone(), owner, ttl_ms, address };
        self.put(Operation::Look(Asked { what, give_up, answer }), answered).await
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
        // Without its tasks the runtime is gone, and with it the connection.
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

/// One of the tasks: ends with its connection.
async fn send_groups<C: Carrier>(
    connection: Weak<C>,
    process: Arc<str>,
    due: Arc<Mutex<mpsc::UnboundedReceiver<Operation>>>,
    under_way: Arc<AtomicUsize>,
) {
    loop {
        let mut operations = Vec::with_capacity(MAX_GROUP);
        let mut queue = due.lock().await;
        if queue.recv_many(&mut operations, MAX_GROUP).await == 0 {
            return;
        }
        let under_way = UnderWay::begin(&under_way);
        // Those who were woken together with the first one come in, too.
        yield_now().await;
        while operations.len() < MAX_GROUP
            && let Ok(operation) = queue.try_recv()
        {
            operations.push(operation);
        }
        let Some(connection) = connection.upgrade() else { return };
        let is_full = operations.len() == MAX_GROUP;
        let calls = send(connection, Arc::clone(&process), operations);
        // Polled once, and not held up by a budget, all its calls stand in the driver's queue: the next group comes
        // behind them.
        let mut group = Box::pin(unconstrained(calls));
        let answered = poll_fn(|context| Poll::Ready(group.as_mut().poll(context))).await;
        drop(queue);
        let rest = async move {
            if answered.is_pending() {
                group.await;
            }
            drop(under_way);
        };
        if is_full {
            tokio::spawn(rest);
        } else {
            rest.await;
        }
    }
}

/// A group that is under way.
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn begin(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Sends a group, and gives each caller its answer.
async fn send<C: Carrier>(connection: Arc<C>, process: Arc<str>, operations: Vec<Operation>) {
    let (connection, process) = (&*connection, &*process);
    let (mut acquisitions, mut looks, mut releases) = (Vec::new(), Vec::new(), Vec::new());
    for operation in operations {
        match operation {
            Operation::Acquire(acquisition) => by_prefix(&mut acquisitions, acquisition, |one| &one.what.key),
            Operation::Look(look) => by_prefix(&mut looks, look, |one| &one.what.key),
            Operation::Release(release) => by_prefix(&mut releases, release, |one| &one.key),
        }
    }
    // All are on their way before one is answered; acquisitions first, because a release may be of one of them.
    let mut calls: Vec<BoxFuture<'_, ()>> =
        Vec::with_capacity(acquisitions.len() + looks.len() + releases.len());
    calls.extend(
        acquisitions
            .into_iter()
            .map(|part| -> BoxFuture<'_, ()> { Box::pin(acquire(connection, process, part)) }),
    );
    calls.extend(
        looks.into_iter().map(|part| -> BoxFuture<'_, ()> { Box::pin(look(connection, process, part)) }),
    );
    calls.extend(
        releases
            .into_iter()
            .map(|part| -> BoxFuture<'_, ()> { Box::pin(release(connection, process, part)) }),
    );
    poll_fn(|context| {
        calls.retain_mut(|call| call.as_mut().poll(context).is_pending());
        if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Puts an operation to those of its prefix, which share a call.
fn by_prefix<T>(parts: &mut Vec<Vec<T>>, operation: T, key: impl Fn(&T) -> &LockKey) {
    let prefix = key(&operation).prefix();
    match parts.iter_mut().find(|part| key(&part[0]).prefix() == prefix) {
        Some(part) => part.push(operation),
        None => parts.push(vec![operation]),
    }
}

async fn acquire<C: Carrier>(connection: &C, process: &str, part: Vec<Asked<Acquisition, Option<u64>>>) {
    let Some((part, give_up)) = still_wanted(part) else { return };
    let answers = if connection.is_usable() {
        let prefix = part[0].what.key.prefix();
        let mut call = begin(&scripts::ACQUIRE_GROUP, part.len() + 1);
        call.write_arg_fmt(names::fence(prefix));
        for one in &part {
            call.arg(one.what.key.stored());
        }
        call.arg(prefix).arg(connection.clock().at(give_up));
        call.write_arg_fmt(format_args!("{process}:"));
        for one in &part {
            call.write_arg_fmt(names::token(one.what.owner));
            call.arg(one.what.ttl_ms);
        }
        let sent = Instant::now();
        let answers = connection.run_once::<Vec<u64>>(&scripts::ACQUIRE_GROUP, &call).await;
        answers.and_then(|answers| {
            // A script that was not known is not run now: a caller that is gone by now may have released already.
            let Some(answers) = answers else { return Ok(vec![None; part.len()]) };
            let (time, answers) = answers.split_first().ok_or_else(unexpected)?;
            let Some((fence, refused)) = answers.split_first() else {
                // It came too late, for the same reason.
                connection.clock().replace(Instant::now(), *time);
                return Ok(vec![None; part.len()]);
            };
            connection.clock().learn(sent, Instant::now(), *time);
            let mut granted = vec![Some(*fence); part.len()];
            refuse(&mut granted, refused, None)?;
            Ok(granted)
        })
    } else {
        Err(Failure::not_sent())
    };
    tell(part.into_iter().map(|one| one.answer), answers);
}

async fn look<C: Carrier>(connection: &C, process: &str, part: Vec<Asked<Look, Option<Answer>>>) {
    let Some((part, give_up)) = still_wanted(part) else { return };
    let answers = if connection.is_usable() {
        let count = 1 + 3 * part.len();
        let mut call = scripts::POLL_GROUP.call_with_room(count, 4 + 2 * count, 128 + 512 * part.len());
        call.write_arg_fmt(names::fence(part[0].what.key.prefix()));
        for Asked { what, .. } in &part {
            call.arg(what.key.stored());
            call.write_arg_fmt(names::beside(&what.key, "queue"));
            call.write_arg_fmt(names::beside(&what.key, "places"));
        }
        call.arg(connection.clock().at(give_up));
        for Asked { what, .. } in &part {
            call.write_arg_fmt(names::owner(process, what.owner));
            call.arg(what.ttl_ms).arg(&what.address);
        }
        let sent = Instant::now();
        let answers = connection.run::<Vec<Told>>(&scripts::POLL_GROUP, &call).await;
        answers.and_then(|answers| {
            let answers: Vec<_> =
                answers.into_iter().map(|told| told.learn(sent, connection.clock())).collect();
            if answers.len() == part.len() { Ok(answers) } else { Err(unexpected()) }
        })
    } else {
        Err(Failure::not_sent())
    };
    tell(part.into_iter().map(|one| one.answer), answers);
}

/// What is still wanted of a part, and when the first of its callers gives up; to the others nothing was sent. None
/// where nothing is left.
fn still_wanted<W, A>(part: Vec<Asked<W, A>>) -> Option<(Vec<Asked<W, A>>, Instant)> {
    let now = Instant::now();
    let (part, late): (Vec<_>, Vec<_>) =
        part.into_iter().filter(|one| !one.answer.is_closed()).partition(|one| one.give_up > now);
    tell(late.into_iter().map(|one| one.answer), Err(Failure::not_sent()));
    let give_up = part.iter().map(|one| one.give_up).min()?;
    Some((part, give_up))
}

async fn release<C: Carrier>(connection: &C, process: &str, part: Vec<Release>) {
    let (part, unsent) = part
        .into_iter()
        .partition::<Vec<_>, _>(|one| one.behind == Behind::Unanswered || connection.is_usable());
    tell(unsent.into_iter().map(|one| one.answer), Err(Failure::not_sent()));
    let Some(first) = part.first() else { return };
    let mut call = begin(&scripts::RELEASE_GROUP, part.len());
    for one in &part {
        call.arg(one.key.stored());
    }
    call.arg(first.key.prefix());
    for one in &part {
        call.write_arg_fmt(names::grant(process, one.owner, one.fence));
    }
    let answers = connection.run_once::<Vec<u64>>(&scripts::RELEASE_GROUP, &call).await;
    let answers = answers.and_then(|refused| {
        let Some(refused) = refused else { return Ok(vec![false; part.len()]) };
        let mut released = vec![true; part.len()];
        refuse(&mut released, &refused, false)?;
        Ok(released)
    });
    tell(part.into_iter().map(|one| one.answer), answers);
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
