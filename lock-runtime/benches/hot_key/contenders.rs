//! The contenders: each library as its users would write it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use distributed_lock_redis::RedisLockHandle;
use lock_runtime::{LockManager, OwnerToken};
use redis::{PushInfo, aio::MultiplexedConnection};
use tokio::sync::Notify;

use crate::{
    PROTOTYPE,
    prototype::Prototype,
    raw::{KEY, TTL_MS, listening},
    support::peers::{self, DistributedLock},
};

const DELETE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) if ARGV[2] then redis.call('PUBLISH', \
     ARGV[2], '') end return 1 end return 0";

/// The contender, shared by the tasks of one process.
#[derive(Clone)]
pub(crate) enum Lock {
    Ours(LockManager),
    Rslock(rslock::LockManager),
    DistributedLock(DistributedLock),
    Raw { connection: MultiplexedConnection, woken: Option<Arc<Notify>>, delete: Arc<redis::Script> },
    Ring(Ring),
    Prototype(Prototype),
    None,
}

pub(crate) enum Held {
    Ours(lock_runtime::LockGuard),
    Rslock(rslock::Lock),
    DistributedLock(RedisLockHandle),
    Raw(u128),
    Prototype(String),
    Nothing,
}

impl Lock {
    pub(crate) async fn open(contender: &str, url: &str, process: u64, processes: u64) -> Self {
        match contender {
            "bare ring" => Self::Ring(Ring::open(url, process, processes).await),
            PROTOTYPE => Self::Prototype(Prototype::open(url, process).await),
            "lock-runtime" => {
                Self::Ours(LockManager::connect(url).await.unwrap().wait(Duration::from_mins(1)))
            }
            "rslock" => {
                let mut manager = rslock::LockManager::new(vec![url]);
                manager.set_retry(u32::MAX, Duration::from_millis(10));
                Self::Rslock(manager)
            }
            "distributed-lock" => Self::DistributedLock(DistributedLock::open(url).await),
            "no lock" => Self::None,
            raw => {
                let races = raw == "publish and race";
                let woken = Arc::new(Notify::new());
                let mut connection = listening(url, waking(&woken)).await;
                if races {
                    connection.subscribe("released").await.unwrap();
                }
                let delete = Arc::new(redis::Script::new(DELETE));
                Self::Raw { connection, woken: races.then_some(woken), delete }
            }
        }
    }

    /// Returns `None` when the time is over.
    pub(crate) async fn acquire(&self, end: Instant) -> Option<Held> {
        match self {
            Self::None => Some(Held::Nothing),
            Self::Ring(ring) => {
                tokio::time::timeout_at(end.into(), ring.mine.notified()).await.ok().map(|()| Held::Nothing)
            }
            // Boxed, so that a thousand tasks of the others do not pay for its size: they did, with 6 %.
            Self::Prototype(prototype) => Box::pin(prototype.acquire(end)).await.map(Held::Prototype),
            Self::Ours(locks) => {
                // No `wait`, which would be a timer per acquisition: it is served when the others stop at the end.
                let guard = locks.lock(KEY).acquire().await.ok()?;
                Some(Held::Ours(guard))
            }
            Self::Rslock(manager) => {
                let ttl = Duration::from_millis(TTL_MS);
                let lock = tokio::time::timeout_at(end.into(), manager.lock(KEY.as_bytes(), ttl))
                    .await
                    .ok()?
                    .ok()?;
                Some(Held::Rslock(lock))
            }
            Self::DistributedLock(locks) => {
                tokio::time::timeout_at(end.into(), locks.acquire(KEY)).await.ok().map(Held::DistributedLock)
            }
            Self::Raw { connection, woken, .. } => {
                let mut connection = connection.clone();
                let token = OwnerToken::random().expose();
                loop {
                    let mut set = redis::cmd("SET");
                    set.arg(KEY).arg(token.to_string()).arg("NX").arg("PX").arg(TTL_MS);
                    let answer: Option<String> = set.query_async(&mut connection).await.unwrap();
                    if answer.is_some() {
                        return Some(Held::Raw(token));
                    }
                    if Instant::now() >= end {
                        return None;
                    }
                    match woken {
                        Some(woken) => {
                            let _ = tokio::time::timeout(Duration::from_millis(100), woken.notified()).await;
                        }
                        None => tokio::time::sleep(peers::pause()).await,
                    }
                }
            }
        }
    }

    pub(crate) async fn release(&self, held: Held) {
        match (self, held) {
            (Self::Rslock(manager), Held::Rslock(lock)) => manager.unlock(&lock).await,
            (_, Held::DistributedLock(handle)) => DistributedLock::release(handle).await,
            (Self::Raw { connection, woken, delete }, Held::Raw(token)) => {
                let mut call = delete.prepare_invoke();
                call.key(KEY).arg(token.to_string());
                if woken.is_some() {
                    call.arg("released");
                }
                let _: i64 = call.invoke_async(&mut connection.clone()).await.unwrap();
            }
            (Self::Ring(ring), _) => ring.pass_on().await,
            (Self::Prototype(prototype), Held::Prototype(owner)) => Box::pin(prototype.release(&owner)).await,
            (_, Held::Ours(guard)) => guard.release().await.unwrap(),
            _ => {}
        }
    }
}

/// Not a lock, but the upper bound for any lock with messages here: each process publishes to the next.
#[derive(Clone)]
pub(crate) struct Ring {
    connection: MultiplexedConnection,
    mine: Arc<Notify>,
    next: String,
}

impl Ring {
    async fn open(url: &str, process: u64, processes: u64) -> Self {
        let mine = Arc::new(Notify::new());
        let mut connection = listening(url, waking(&mine)).await;
        let channel = |process| format!("ring:{process}");
        connection.subscribe(channel(process)).await.unwrap();
        if process == 0 {
            mine.notify_one();
        }
        Self { connection, mine, next: channel((process + 1) % processes) }
    }

    async fn pass_on(&self) {
        let mut publish = redis::cmd("PUBLISH");
        let _: u64 = publish.arg(&self.next).arg("").query_async(&mut self.connection.clone()).await.unwrap();
    }
}

/// Notifies `wake` of each message.
fn waking(wake: &Arc<Notify>) -> impl Fn(&PushInfo) + Send + Sync + 'static {
    let wake = Arc::clone(wake);
    move |_| wake.notify_one()
}
