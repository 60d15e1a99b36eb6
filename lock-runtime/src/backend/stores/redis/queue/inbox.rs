//! The messages that the server sends to this process unasked: that a lock was granted, that it is left open to clients
//! that do not queue, that others wait for a held lock, and that a held lock was revoked.
//!
//! Any client that may publish on the channel can send messages that look the same. Therefore, a grant message carries
//! a proof, every other message is a hint, and no message makes memory grow.

use std::{
    collections::{HashMap, VecDeque},
    future::poll_fn,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use redis::{PushInfo, PushKind, Value};
use sha1_smol::Digest;
use tokio::task::coop::cooperative;

use super::super::proof::Terms;
use crate::{
    OwnerToken,
    backend::{
        LeaseId,
        common::{
            hints::{self, Hints},
            revocations::Revocations,
        },
        kits::redis::{foreign::Foreign, net::Pushes},
    },
    key::{MAX_KEY_BYTES, MAX_PREFIX_BYTES},
    sync::lock,
};

/// Upper bound on the pushes kept for waiters that do not listen yet.
const UNCLAIMED: usize = 1024;
/// Number of waiters that are remembered after they have left.
const CLOSED: usize = 64;
/// Upper bound on the pushes kept for one waiter. A waiter is sent two or three pushes; its next poll makes up for a
/// push that finds no room.
const KEPT_PER_WAITER: usize = 8;
/// Number of holds that can be remembered as contended. If a notice overwrites the notice about another hold, the other
/// hold counts as uncontended: until a second has passed since its grant, tasks of this process may pass it on although
/// others wait.
const CONTENDED: usize = 4096;

/// The receiver of the pushes over all connections of one store.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// The id is no secret, but unique to this process.
    id: String,
    boxes: Mutex<Boxes>,
    contended: Contended,
    /// Notified, by the lock's name, of each contention notice.
    contention: Arc<Hints>,
    revocations: Revocations,
    foreign: Foreign,
    numbers: RandomState,
}

#[derive(Debug, Default)]
struct Boxes {
    by_number: HashMap<u64, Waiter>,
    /// Pushes without a listener yet: a push may arrive before its waiter has read the answer "waiting".
    unclaimed: VecDeque<(u64, Notice)>,
    /// The waiters that left last, whose pushes are dropped: there may be further copies.
    closed: VecDeque<u64>,
}

/// The mailbox of a waiter; a channel would allocate three kilobytes.
#[derive(Debug)]
struct Waiter {
    notices: VecDeque<Notice>,
    /// The waker of the waiter, if the waiter has read all notices and waits for the next.
    reader: Option<Waker>,
    connection: u64,
}

impl Waiter {
    fn deliver(&mut self, notice: Notice) {
        // A process that has subscribed on several servers of a cluster gets copies.
        if self.notices.len() < KEPT_PER_WAITER && !self.notices.contains(&notice) {
            self.notices.push_back(notice);
        }
    }
}

/// A message to a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The lock was granted to the waiter, if the [proof](Terms::proof) is right.
    Granted { proof: Digest, terms: Terms },
    /// The lock is left open for this time, and the waiter is the first in the queue.
    Free { length: Duration },
}

/// The holds with a contention notice: a table of fixed size, in which each hold has one slot.
#[derive(Debug)]
struct Contended {
    /// Random, so that no sender knows which names share a slot.
    hasher: RandomState,
    holds: Box<[AtomicU64]>,
}

impl Contended {
    fn new() -> Self {
        Self { hasher: RandomState::new(), holds: (0..CONTENDED).map(|_| AtomicU64::new(0)).collect() }
    }

    fn place(&self, name: &str, fence: u64) -> (&AtomicU64, u64) {
        let hold = self.hasher.hash_one((name, fence)).max(1);
        let place = usize::try_from(hold % CONTENDED as u64).unwrap_or_default();
        (&self.holds[place], hold)
    }

    fn insert(&self, name: &str, fence: u64) {
        let (place, hold) = self.place(name, fence);
        place.store(hold, Ordering::Relaxed);
    }

    fn contains(&self, name: &str, fence: u64) -> bool {
        let (place, hold) = self.place(name, fence);
        place.load(Ordering::Relaxed) == hold
    }
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self {
            id: format!("{:016x}", OwnerToken::random().expose() >> 64),
            boxes: Mutex::default(),
            contended: Contended::new(),
            contention: Arc::default(),
            revocations: Revocations::default(),
            foreign: Foreign::default(),
            numbers: RandomState::new(),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the public number of a waiter.
    ///
    /// The number is derived from the owner token without revealing the token. A forked copy of this process makes other
    /// tokens, and so has other numbers.
    pub(crate) fn number(&self, owner: OwnerToken) -> u64 {
        self.numbers.hash_one(owner)
    }

    /// Returns the locks that foreign clients use, too.
    pub(crate) fn foreign(&self) -> &Foreign {
        &self.foreign
    }

    /// Returns the holders that are notified of revocations.
    pub(crate) fn revocations(&self) -> &Revocations {
        &self.revocations
    }

    /// Opens the mailbox of a waiter, with the notices that have already come for it.
    pub(crate) fn listen(this: &Arc<Self>, number: u64, connection: u64) -> Notices {
        let mut waiter = Waiter { notices: VecDeque::new(), reader: None, connection };
        let mut boxes = lock(&this.boxes);
        // A waiter that listens again, over another connection, has the same number.
        boxes.closed.retain(|closed| *closed != number);
        boxes.unclaimed.retain(|(to, notice)| {
            let ours = *to == number;
            if ours {
                waiter.deliver(*notice);
            }
            !ours
        });
        boxes.by_number.insert(number, waiter);
        Notices { number, inbox: Arc::clone(this) }
    }

    /// Returns whether others are known to wait for this hold.
    pub(crate) fn is_contended(&self, id: &LeaseId) -> bool {
        self.contended.contains(id.key.stored(), id.token.micros())
    }

    /// Counts the contention notices about the lock of this hold, whichever hold the notices are about.
    pub(crate) fn watch_contention(&self, id: &LeaseId) -> hints::Watch {
        self.contention.watch(id.key.stored_name())
    }
}

impl Pushes for Inbox {
    fn take(&self, push: &PushInfo) {
        if push.kind != PushKind::Message {
            return;
        }
        match push.data.get(1).and_then(Message::read) {
            Some(Message::Notice { number, notice }) => {
                let reader = lock(&self.boxes).put(number, notice);
                // The waker is not woken under the mutex, because a runtime may poll from within `wake`.
                reader.into_iter().for_each(Waker::wake);
            }
            Some(Message::Contended { fence, name }) => {
                self.contended.insert(name, fence);
                self.contention.notify(name);
            }
            Some(Message::Revoked { name }) => self.revocations.notify(name),
            None => {}
        }
    }

    /// Closes the mailboxes of the connection, and wakes the waiters, for which `Notices::next` then returns `None`.
    fn hang_up(&self, connection: u64) {
        let closed: Vec<_> =
            lock(&self.boxes).by_number.extract_if(|_, waiter| waiter.connection == connection).collect();
        closed.into_iter().filter_map(|(_, waiter)| waiter.reader).for_each(Waker::wake);
    }
}

impl Boxes {
    /// Closes the mailbox of a waiter.
    fn close(&mut self, number: u64) -> Option<Waiter> {
        if self.closed.len() >= CLOSED {
            self.closed.pop_front();
        }
        self.closed.push_back(number);
        self.by_number.remove(&number)
    }

    /// Returns the waker of the waiter, if it waits for a notice.
    fn put(&mut self, number: u64, notice: Notice) -> Option<Waker> {
        if let Some(waiter) = self.by_number.get_mut(&number) {
            waiter.deliver(notice);
            return waiter.reader.take();
        }
        if self.closed.contains(&number) {
            return None;
        }
        if self.unclaimed.len() >= UNCLAIMED {
            self.unclaimed.pop_front();
        }
        self.unclaimed.push_back((number, notice));
        None
    }
}

/// A message of the scripts.
#[derive(Debug, PartialEq, Eq)]
enum Message<'a> {
    Notice { number: u64, notice: Notice },
    Contended { fence: u64, name: &'a str },
    Revoked { name: &'a str },
}

impl<'a> Message<'a> {
    /// Reads `granted <number> <proof> <fence> <px ms> <foreign ms>`, `free <number> <ms>`, `contended <fence> <name>`
    /// or `revoked <fence> <name>`; a name may contain spaces.
    fn read(payload: &'a Value) -> Option<Self> {
        let Value::BulkString(payload) = payload else { return None };
        let (word, rest) = std::str::from_utf8(payload).ok()?.split_once(' ')?;
        let mut parts = rest.split(' ');
        let mut number = || parts.next()?.parse::<u64>().ok();
        match word {
            "granted" => {
                let number = number()?;
                let proof = parts.next()?.parse().ok()?;
                let mut next = || parts.next()?.parse::<u64>().ok();
                let (fence, px, foreign) = (next()?, next()?, next()?);
                let terms =
                    Terms { fence, px: Duration::from_millis(px), foreign: Duration::from_millis(foreign) };
                Some(Self::Notice { number, notice: Notice::Granted { proof, terms } })
            }
            "free" => {
                let (number, length) = (number()?, Duration::from_millis(number()?));
                Some(Self::Notice { number, notice: Notice::Free { length } })
            }
            "contended" => {
                let (fence, name) = rest.split_once(' ')?;
                Some(Self::Contended { fence: fence.parse().ok()?, name })
            }
            "revoked" => {
                // The fence is for readers of the messages: the renewal finds out whether the grant was revoked.
                let (_, name) = rest.split_once(' ')?;
                // The name is kept until the lease is renewed. No lock has a longer name.
                (name.len() <= MAX_PREFIX_BYTES + MAX_KEY_BYTES).then_some(Self::Revoked { name })
            }
            _ => None,
        }
    }
}

/// The mailbox of one waiter, as long as the waiter waits.
#[derive(Debug)]
pub(crate) struct Notices {
    number: u64,
    inbox: Arc<Inbox>,
}

impl Notices {
    /// Returns the next notice; `None` once the connection is gone.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Notice> {
        cooperative(poll_fn(|cx| self.poll_next(cx))).await
    }

    fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Option<Notice>> {
        let mut boxes = lock(&self.inbox.boxes);
        let Some(waiter) = boxes.by_number.get_mut(&self.number) else { return Poll::Ready(None) };
        if let Some(notice) = waiter.notices.pop_front() {
            return Poll::Ready(Some(notice));
        }
        let last = match &waiter.reader {
            Some(reader) if reader.will_wake(cx.waker()) => None,
            _ => waiter.reader.replace(cx.waker().clone()),
        };
        // The waker is not dropped under the mutex, because it may be the last handle to a task that closes its mailbox
        // when dropped.
        drop(boxes);
        drop(last);
        Poll::Pending
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        // The waiter is not dropped under the mutex, for the same reason as the waker in `poll_next`.
        let closed = lock(&self.inbox.boxes).close(self.number);
        drop(closed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        Message::read(&Value::BulkString(text.into())).map(|message| format!("{message:?}"))
    }

    #[test]
    fn messages_are_read_and_others_ignored() {
        let proof = "00112233445566778899aabbccddeeff00112233";
        let notice = Notice::Granted {
            proof: proof.parse().expect("of the right length"),
            terms: Terms { fence: 8, px: Duration::from_secs(2), foreign: Duration::from_secs(9) },
        };
        let granted = Message::Notice { number: 7, notice };
        assert_eq!(read(&format!("granted 7 {proof} 8 2000 9000")), Some(format!("{granted:?}")));
        let contended = Message::Contended { fence: 8, name: "my app:user 42" };
        assert_eq!(read("contended 8 my app:user 42"), Some(format!("{contended:?}")));
        let revoked = Message::Revoked { name: "my app:user 42" };
        assert_eq!(read("revoked 8 my app:user 42"), Some(format!("{revoked:?}")));
        let longest = "x".repeat(MAX_PREFIX_BYTES + MAX_KEY_BYTES);
        assert!(read(&format!("revoked 8 {longest}")).is_some());
        assert_eq!(read(&format!("revoked 8 {longest}x")), None, "no lock has this name");
        let free = Message::Notice { number: 7, notice: Notice::Free { length: Duration::from_millis(100) } };
        assert_eq!(read("free 7 100"), Some(format!("{free:?}")));
        for other in [
            "",
            "granted",
            "granted 7 8 2000",
            "granted 7 0011 8 2000 0",
            "granted a b c d",
            "free 7",
            "contended x y",
            "revoked 8",
            "hello 1 2",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    fn now(notices: &mut Notices) -> Poll<Option<Notice>> {
        notices.poll_next(&Context::from_waker(Waker::noop()))
    }

    /// A reader that is never woken waits for its next poll of the server.
    #[tokio::test]
    async fn a_reader_is_woken_by_a_notice_and_by_the_end_of_its_connection() {
        let inbox = Arc::new(Inbox::new());
        let mut notices = Inbox::listen(&inbox, 7, 0);
        let reader = tokio::spawn(async move { (notices.next().await, notices.next().await) });
        tokio::task::yield_now().await;
        inbox.take(&PushInfo {
            kind: PushKind::Message,
            data: vec![Value::SimpleString("channel".into()), Value::BulkString("free 7 100".into())],
        });
        tokio::task::yield_now().await;
        inbox.hang_up(0);
        let free = Notice::Free { length: Duration::from_millis(100) };
        assert_eq!(reader.await.expect("it ends"), (Some(free), None));
    }

    #[test]
    fn a_notice_that_comes_before_its_waiter_listens_is_kept() {
        let inbox = Arc::new(Inbox::new());
        let number = inbox.number(OwnerToken::random());
        let notice = Notice::Free { length: Duration::ZERO };
        lock(&inbox.boxes).put(number, notice);
        lock(&inbox.boxes).put(number.wrapping_add(1), notice);
        let mut notices = Inbox::listen(&inbox, number, 0);
        assert_eq!(now(&mut notices), Poll::Ready(Some(notice)));
        assert_eq!(now(&mut notices), Poll::Pending);
        inbox.hang_up(1);
        assert_eq!(now(&mut notices), Poll::Pending);
        inbox.hang_up(0);
        assert_eq!(now(&mut notices), Poll::Ready(None));
    }

    #[test]
    fn a_flood_of_messages_makes_nothing_grow() {
        let inbox = Arc::new(Inbox::new());
        let mut notices = Inbox::listen(&inbox, 7, 0);
        let flood = |text: String| {
            inbox.take(&PushInfo {
                kind: PushKind::Message,
                data: vec![Value::SimpleString("channel".into()), Value::BulkString(text.into())],
            });
        };
        for number in 0..10_000 {
            flood(format!("free 7 {number}"));
            flood(format!("free {} 100", number + 8));
            flood(format!("contended {number} {}", "x".repeat(1_000)));
        }
        assert_eq!(lock(&inbox.boxes).unclaimed.len(), UNCLAIMED);
        let mut kept = 0;
        while now(&mut notices).is_ready() {
            kept += 1;
        }
        assert_eq!(kept, KEPT_PER_WAITER);
        assert!(inbox.contended.contains(&"x".repeat(1_000), 9_999));
        assert!(!inbox.contended.contains("x", 9_999), "of another lock");
    }
}
