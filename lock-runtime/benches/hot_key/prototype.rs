//! Not a lock to use, but the upper bound for this library: its scripts with the shortest way to and from them. Grants
//! are believed without proof, and there are no renewals, deadlines, clean-up or hand-overs inside the process, which may
//! have one task.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use lock_runtime::{OwnerToken, backend::redis::programs};
use redis::{PushInfo, Script, Value, aio::MultiplexedConnection};
use tokio::sync::Notify;

use super::raw::{KEY, TTL_MS, listening};

/// Pause between two polls; only an opening for foreign clients makes them necessary.
const POLL: Duration = Duration::from_millis(20);

#[derive(Clone)]
pub(crate) struct Prototype {
    connection: MultiplexedConnection,
    acquire: Arc<Script>,
    release: Arc<Script>,
    /// The beginning of all owners of this process.
    process: String,
    inbox: String,
    granted: Arc<Granted>,
}

/// The number of the waiter that was granted the lock last, by a message.
#[derive(Default)]
struct Granted {
    number: AtomicU64,
    changed: Notify,
}

impl Granted {
    fn take(&self, push: &PushInfo) {
        let Some(Value::BulkString(payload)) = push.data.get(1) else { return };
        let mut words = std::str::from_utf8(payload).unwrap().split(' ');
        if words.next() == Some("granted") {
            self.number.store(words.next().unwrap().parse().unwrap(), Ordering::Release);
            self.changed.notify_one();
        }
    }
}

impl Prototype {
    pub(crate) async fn open(url: &str, process: u64) -> Self {
        let granted = Arc::<Granted>::default();
        let taken_by = Arc::clone(&granted);
        let mut connection = listening(url, move |push| taken_by.take(push)).await;
        let inbox = format!("lock:~1:inbox:{process:016x}");
        connection.subscribe(&inbox).await.unwrap();
        let [acquire, release] = programs().map(|text| Arc::new(Script::new(text)));
        Self { connection, acquire, release, process: format!("1x:1@host:{process:016x}:"), inbox, granted }
    }

    /// Returns the owner, or `None` when the time is over.
    pub(crate) async fn acquire(&self, end: Instant) -> Option<String> {
        let token = OwnerToken::random().expose();
        let (owner, number) = (format!("{}{token:032x}", self.process), token as u64);
        let address = format!("{number} {}", self.inbox);
        let mut wants = "join";
        loop {
            // A limit in the year 2112.
            let mut call = self.acquire.arg(4_503_599_627_370_495_u64);
            call.arg(wants).arg(&owner).arg(TTL_MS).arg(&address);
            let answer: String = about(&mut call).invoke_async(&mut self.connection.clone()).await.unwrap();
            if !answer.starts_with("waiting") {
                return Some(owner);
            }
            let granted = async {
                while self.granted.number.load(Ordering::Acquire) != number {
                    self.granted.changed.notified().await;
                }
            };
            if tokio::time::timeout(POLL, granted).await.is_ok() {
                return Some(owner);
            }
            if Instant::now() >= end {
                self.release(&owner).await;
                return None;
            }
            wants = "poll";
        }
    }

    pub(crate) async fn release(&self, owner: &str) {
        let mut call = self.release.arg(owner);
        let _: String = about(&mut call).invoke_async(&mut self.connection.clone()).await.unwrap();
    }
}

/// Adds the keys of the lock.
fn about<'a, 'b>(call: &'b mut redis::ScriptInvocation<'a>) -> &'b mut redis::ScriptInvocation<'a> {
    call.key("lock:~1:fence").key("lock:~1:queues").key(format!("lock:{KEY}"));
    for part in ["queue", "places", "open"] {
        call.key(format!("lock:{{lock:{KEY}}}:~1:{part}"));
    }
    call
}
