//! What the server tells this process without being asked: grants, and that others wait.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc;

use crate::{OwnerToken, backend::LeaseId};

/// Pushes that are kept for waiters which do not listen yet.
const UNCLAIMED: usize = 1024;
/// Locks that are remembered as contended; when there are more, all are forgotten, which costs fairness for a moment.
const CONTENDED: usize = 4096;

/// Where the pushes of all connections of one store arrive.
#[derive(Debug)]
pub(super) struct Inbox {
    /// Not a secret, but unlike that of any other process.
    id: String,
    numbers: AtomicU64,
    boxes: Mutex<Boxes>,
    /// Stored names, and the fence of the hold for which others wait.
    contended: Mutex<HashMap<String, u64>>,
}

#[derive(Debug, Default)]
struct Boxes {
    by_number: HashMap<u64, Waiter>,
    /// A push may arrive before its waiter has seen the answer that says that it waits.
    unclaimed: VecDeque<(u64, Letter)>,
}

#[derive(Debug)]
struct Waiter {
    deliver: mpsc::UnboundedSender<Letter>,
    connection: u64,
}

/// What a waiter is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Letter {
    /// The lock was given to it.
    Granted {
        fence: u64,
        /// The length of the lease.
        px: Duration,
        /// Whether others were left in the queue.
        others_wait: bool,
    },
    /// The lock is free, and it is the first in the queue.
    Free,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            id: format!("{:016x}", OwnerToken::random().expose() >> 64),
            numbers: AtomicU64::new(0),
            boxes: Mutex::default(),
            contended: Mutex::default(),
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Called by the driver, in the order of arrival; must not block.
    pub(super) fn take(&self, push: &PushInfo) {
        if push.kind != PushKind::Message {
            return;
        }
        match push.data.get(1).and_then(Message::read) {
            Some(Message::Letter { number, letter }) => lock(&self.boxes).put(number, letter),
            Some(Message::Contended { fence, name }) => {
                let mut contended = lock(&self.contended);
                if contended.len() >= CONTENDED {
                    contended.clear();
                }
                contended.insert(name.to_owned(), fence);
            }
            None => {}
        }
    }

    /// Opens a letter box, with what has come for it already.
    pub(super) fn listen(this: &Arc<Self>, number: u64, connection: u64) -> Letters {
        let (deliver, delivered) = mpsc::unbounded_channel();
        let mut boxes = lock(&this.boxes);
        boxes.unclaimed.retain(|(to, letter)| {
            let ours = *to == number;
            if ours {
                // The receiver is in the same function.
                let _ = deliver.send(*letter);
            }
            !ours
        });
        boxes.by_number.insert(number, Waiter { deliver, connection });
        Letters { number, delivered, inbox: Arc::clone(this) }
    }

    /// Nothing comes over this connection any more: whoever waited for it sees its letter box closed.
    pub(super) fn hang_up(&self, connection: u64) {
        lock(&self.boxes).by_number.retain(|_, waiter| waiter.connection != connection);
    }

    /// Whether others are known to wait for this hold.
    pub(super) fn is_contended(&self, id: &LeaseId) -> bool {
        lock(&self.contended).get(id.key.stored()) == Some(&id.token.micros())
    }

    pub(super) fn forget_contention(&self, id: &LeaseId) {
        let mut contended = lock(&self.contended);
        if !contended.is_empty() {
            contended.remove(id.key.stored());
        }
    }
}

impl Boxes {
    fn put(&mut self, number: u64, letter: Letter) {
        if let Some(waiter) = self.by_number.get(&number) {
            // A waiter that is gone gives its grant back by itself.
            let _ = waiter.deliver.send(letter);
            return;
        }
        if self.unclaimed.len() >= UNCLAIMED {
            self.unclaimed.pop_front();
        }
        self.unclaimed.push_back((number, letter));
    }
}

/// A message of the scripts.
#[derive(Debug, PartialEq, Eq)]
enum Message<'a> {
    Letter { number: u64, letter: Letter },
    Contended { fence: u64, name: &'a str },
}

impl<'a> Message<'a> {
    /// Reads `granted <number> <fence> <px ms> <0|1>`, `free <number>` or `contended <fence> <name>`; a name may
    /// contain spaces.
    fn read(payload: &'a Value) -> Option<Self> {
        let Value::BulkString(payload) = payload else { return None };
        let (word, rest) = std::str::from_utf8(payload).ok()?.split_once(' ')?;
        match word {
            "granted" => {
                let mut numbers = rest.split(' ').map(str::parse::<u64>);
                let mut next = || numbers.next()?.ok();
                let (number, fence, px, others) = (next()?, next()?, next()?, next()?);
                let letter =
                    Letter::Granted { fence, px: Duration::from_millis(px), others_wait: others == 1 };
                Some(Self::Letter { number, letter })
            }
            "free" => Some(Self::Letter { number: rest.parse().ok()?, letter: Letter::Free }),
            "contended" => {
                let (fence, name) = rest.split_once(' ')?;
                Some(Self::Contended { fence: fence.parse().ok()?, name })
            }
            _ => None,
        }
    }
}

/// The letter box of one waiter, as long as it waits.
#[derive(Debug)]
pub(super) struct Letters {
    number: u64,
    delivered: mpsc::UnboundedReceiver<Letter>,
    inbox: Arc<Inbox>,
}

impl Letters {
    /// The next grant; none when the connection is gone.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Letter> {
        self.delivered.recv().await
    }
}

impl Drop for Letters {
    fn drop(&mut self) {
        lock(&self.inbox.boxes).by_number.remove(&self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<String> {
        Message::read(&Value::BulkString(text.into())).map(|message| format!("{message:?}"))
    }

    #[test]
    fn messages_are_read_and_others_ignored() {
        let letter = Letter::Granted { fence: 8, px: Duration::from_secs(2), others_wait: true };
        let granted = Message::Letter { number: 7, letter };
        assert_eq!(read("granted 7 8 2000 1"), Some(format!("{granted:?}")));
        let contended = Message::Contended { fence: 8, name: "my app:user 42" };
        assert_eq!(read("contended 8 my app:user 42"), Some(format!("{contended:?}")));
        let free = Message::Letter { number: 7, letter: Letter::Free };
        assert_eq!(read("free 7"), Some(format!("{free:?}")));
        for other in ["", "granted", "granted 7 8", "granted a b c d", "contended x y", "hello 1 2"] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn a_letter_that_comes_before_its_waiter_listens_is_kept() {
        let inbox = Arc::new(Inbox::new());
        let number = inbox.next_number();
        let letter = Letter::Free;
        lock(&inbox.boxes).put(number, letter);
        lock(&inbox.boxes).put(number + 1, letter);
        let mut letters = Inbox::listen(&inbox, number, 0);
        assert_eq!(letters.delivered.try_recv(), Ok(letter));
        assert!(letters.delivered.try_recv().is_err());
        inbox.hang_up(1);
        assert!(matches!(letters.delivered.try_recv(), Err(mpsc::error::TryRecvError::Empty)));
        inbox.hang_up(0);
        assert!(matches!(letters.delivered.try_recv(), Err(mpsc::error::TryRecvError::Disconnected)));
    }
}
