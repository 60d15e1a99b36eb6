//! The contenders: each library as its users would write it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lock_runtime::{
    LockManager,
    backend::{Redis, redis::GroupCommit},
};
use redis::aio::MultiplexedConnection;
use tokio::runtime::{Builder, Runtime};

use crate::{
    SINGLE,
    support::{Round, Server, link::Link, peers::DistributedLock, round},
};

const TTL: Duration = Duration::from_secs(30);

/// All contenders on a runtime of their own, with connections over one link.
pub(crate) struct Client {
    pub(crate) workers: usize,
    raw: MultiplexedConnection,
    delete: Arc<redis::Script>,
    rslock: rslock::LockManager,
    distributed_lock: DistributedLock,
    locks: LockManager,
    single: LockManager,
    tokens: Arc<AtomicU64>,
    // Dropped last: the connections are tasks of it.
    runtime: Runtime,
}

impl Client {
    pub(crate) fn open(workers: usize, link: &Link) -> Self {
        let url = link.url();
        let runtime = Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap();
        let raw = redis::Client::open(url).unwrap();
        let single = LockManager::new(Redis::with_group_commit(url, GroupCommit::Never).unwrap());
        runtime.block_on(single.ping()).unwrap();
        Self {
            workers,
            raw: runtime.block_on(raw.get_multiplexed_async_connection()).unwrap(),
            delete: Arc::new(redis::Script::new(
                "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end",
            )),
            rslock: rslock::LockManager::new(vec![url]),
            distributed_lock: runtime.block_on(DistributedLock::open(url)),
            locks: runtime.block_on(LockManager::connect(url)).unwrap(),
            single,
            tokens: Arc::default(),
            runtime,
        }
    }

    /// Runs one round of a contender.
    pub(crate) fn round(&self, contender: &str, server: &Server, tasks: usize, length: Duration) -> Round {
        match contender {
            "raw driver" => {
                let (raw, delete, tokens) = (self.raw.clone(), self.delete.clone(), self.tokens.clone());
                self.runtime.block_on(round(server, tasks, length, move |task, _| {
                    let (mut raw, delete) = (raw.clone(), delete.clone());
                    let token = tokens.fetch_add(1, Ordering::Relaxed);
                    async move {
                        let key = format!("raw:{task}");
                        let mut set = redis::cmd("SET");
                        set.arg(&key).arg(token).arg("NX").arg("PX").arg(30_000);
                        let () = set.query_async(&mut raw).await.unwrap();
                        let deleted: i64 = delete.key(&key).arg(token).invoke_async(&mut raw).await.unwrap();
                        assert_eq!(deleted, 1);
                    }
                }))
            }
            "rslock" => {
                let rslock = self.rslock.clone();
                self.runtime.block_on(round(server, tasks, length, move |task, _| {
                    let rslock = rslock.clone();
                    async move {
                        let lock = rslock.lock(format!("rslock:{task}").as_bytes(), TTL).await.unwrap();
                        rslock.unlock(&lock).await;
                    }
                }))
            }
            "distributed-lock" => {
                let locks = self.distributed_lock.clone();
                self.runtime.block_on(round(server, tasks, length, move |task, _| {
                    let locks = locks.clone();
                    async move {
                        let handle = locks.attempt(&format!("{task}")).await.expect("it is free");
                        DistributedLock::release(handle).await;
                    }
                }))
            }
            ours => {
                let locks = if ours == SINGLE { self.single.clone() } else { self.locks.clone() };
                self.runtime.block_on(round(server, tasks, length, move |task, _| {
                    let locks = locks.clone();
                    async move {
                        let guard = locks.lock(format!("ours:{task}")).ttl(TTL).acquire().await.unwrap();
                        guard.release().await.unwrap();
                    }
                }))
            }
        }
    }
}
