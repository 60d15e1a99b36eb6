//! Where a waiter's place stands on the server, and what an entry costs.

use std::time::{Duration, Instant};

use lock_runtime::{LockManager, backend::redis::GroupCommit};

use super::{LONG, connected, url};
use crate::support::{redis_server::RedisServer, resp::Value, until};

const MS: Duration = Duration::from_millis(1);

/// Places in the list, places in the hash, and the waiters for `k`, in their order.
fn queue_of(server: &RedisServer) -> (usize, i64, Vec<String>) {
    let [queue, places] = ["queue", "places"].map(|what| format!("lock:{{lock:k}}:~1:{what}"));
    let entries = server.command(&["LRANGE", &queue, "0", "-1"]).texts();
    let in_list = entries.iter().filter(|entry| entry.contains(' ')).count();
    let owners = entries.iter().map(|entry| entry.split(' ').next().unwrap().to_owned());
    (in_list, server.command(&["HLEN", &places]).int(), owners.collect())
}

#[tokio::test]
async fn places_are_found_in_the_list_and_in_the_hash() {
    const WAITERS: usize = 12;
    /// Number of entries that may contain their places.
    const NEAR: usize = 8;
    let server = RedisServer::start(&[]);
    let holder = LockManager::connect(&url(&server, "")).await.unwrap();
    let guard = holder.lock("k").acquire().await.unwrap();
    let (entered, mut entries) = tokio::sync::mpsc::unbounded_channel();
    let mut waiters = Vec::new();
    for number in 0..WAITERS {
        let locks = LockManager::connect(&url(&server, "")).await.unwrap();
        let entered = entered.clone();
        waiters.push(tokio::spawn(async move {
            let guard = locks.lock("k").wait(LONG).acquire().await.unwrap();
            entered.send(number).unwrap();
            guard.release().await.unwrap();
        }));
        until("it waits", || if queue_of(&server).2.len() == number + 1 { Ok(()) } else { Err(()) }).await;
    }
    let (in_list, in_hash, order) = queue_of(&server);
    if in_list + usize::try_from(in_hash).unwrap() == WAITERS {
        assert_eq!(in_list, NEAR, "unless they were refreshed before all had joined");
    }
    // One that is near, and one that is far.
    for given_up in [3, 10] {
        waiters[given_up].abort();
    }
    let rest = |owner: &&String| **owner != order[3] && **owner != order[10];
    let rest: Vec<String> = order.iter().filter(rest).cloned().collect();
    until("both have left", || match queue_of(&server).2 {
        owners if owners == rest => Ok(()),
        owners => Err(owners),
    })
    .await;
    until("all are refreshed", || match queue_of(&server) {
        (0, 10, _) => Ok(()),
        other => Err(other),
    })
    .await;
    // Joined behind refreshed places.
    let late = LockManager::connect(&url(&server, "")).await.unwrap();
    let late = tokio::spawn(async move { late.lock("k").wait(LONG).acquire().await.unwrap() });
    until("it waits", || if queue_of(&server).2.len() == 11 { Ok(()) } else { Err(()) }).await;
    guard.release().await.unwrap();
    late.await.unwrap().release().await.unwrap();
    drop(entered);
    let mut numbers = Vec::new();
    while let Some(number) = entries.recv().await {
        numbers.push(number);
    }
    // A release that leaves the lock open for other clients changes nothing in the order.
    assert_eq!(numbers, [0, 1, 2, 4, 5, 6, 7, 8, 9, 11]);
    assert_eq!(server.command(&["KEYS", "*queue"]).texts(), Vec::<String>::new());
    assert_eq!(server.command(&["KEYS", "*places"]).texts(), Vec::<String>::new());
}

/// A batch looks for the queues of its locks only while `queues` exists.
#[tokio::test]
async fn batches_find_a_queue_as_long_as_it_lasts() {
    const BOTH: &str = "return { redis.call('PTTL', KEYS[1]), redis.call('PTTL', KEYS[2]) }";
    let server = RedisServer::start(&[]);
    let ours = connected(&url(&server, ""), GroupCommit::Always).await;
    let theirs = LockManager::connect(&url(&server, "")).await.unwrap();
    let guard = ours.lock("k").acquire().await.unwrap();
    let (enters, entered) = tokio::sync::oneshot::channel();
    let waiter = tokio::spawn(async move {
        let guard = theirs.lock("k").wait(LONG).acquire().await.unwrap();
        enters.send(guard.fencing_token()).unwrap();
        std::future::pending::<()>().await;
    });
    until("it waits", || if queue_of(&server).2.len() == 1 { Ok(()) } else { Err(()) }).await;
    // Longer than a queue lasts without a refresh.
    let began = Instant::now();
    while began.elapsed() < 10_000 * MS {
        // In this order: up to version 7.0, time goes on inside a script.
        let lengths = server.command(&["EVAL", BOTH, "2", "lock:~1:queues", "lock:{lock:k}:~1:queue"]);
        let Value::Array(lengths) = lengths else { panic!("two lengths, not {lengths:?}") };
        let [queues, queue] = &lengths[..] else { panic!("two lengths, not {lengths:?}") };
        assert!(queues.clone().int() >= queue.clone().int(), "{lengths:?}");
        tokio::time::sleep(300 * MS).await;
    }
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    // Handed over, or after a hold of this length left open for other clients.
    let left = server.command(&["EXISTS", "lock:k", "lock:{lock:k}:~1:open"]);
    assert_eq!(left.int(), 1, "it was released as one without waiters");
    assert!(entered.await.unwrap() > token);
    waiter.abort();
}

/// Number of commands that the scripts have run.
fn commands_of_scripts(server: &RedisServer) -> u64 {
    let Value::Text(stats) = server.command(&["INFO", "commandstats"]) else { panic!("INFO is a text") };
    let inside = ["get", "set", "del", "exists", "time", "publish", "pttl", "pexpire"].map(str::to_owned);
    let of_queues =
        ["rpush", "lpush", "lpop", "lrange", "lindex", "lset", "lrem", "lpos", "hset", "hget", "hdel"];
    let names = inside.into_iter().chain(of_queues.map(str::to_owned));
    names
        .filter_map(|name| {
            let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")))?;
            line.split(',').next()?.parse::<u64>().ok()
        })
        .sum()
}

#[tokio::test]
async fn an_entry_costs_few_commands_and_its_queue_outlasts_the_places_in_it() {
    const TURNS: u64 = 300;
    let server = RedisServer::start(&[]);
    let mut tasks = Vec::new();
    let (count, mut entries) = tokio::sync::watch::channel(0_u64);
    for _ in 0..4 {
        let (locks, count) = (LockManager::connect(&url(&server, "")).await.unwrap(), count.clone());
        tasks.push(tokio::spawn(async move {
            loop {
                let guard = locks.lock("k").wait(LONG).acquire().await.unwrap();
                count.send_modify(|count| *count += 1);
                // As long as a short section, so that the others have joined by then.
                tokio::time::sleep(2 * MS).await;
                guard.release().await.unwrap();
            }
        }));
    }
    entries.wait_for(|count| *count > 20).await.unwrap();
    server.command(&["CONFIG", "RESETSTAT"]);
    let before = *entries.borrow();
    entries.wait_for(|count| *count > before + TURNS).await.unwrap();
    let (entries, commands) = (*entries.borrow() - before, commands_of_scripts(&server));
    println!("{commands} commands in {entries} entries");
    assert!(commands <= 11 * entries, "{commands} commands in {entries} entries");
    let queue = "lock:{lock:k}:~1:queue";
    let began = Instant::now();
    while began.elapsed() < 14_000 * MS {
        let left = server.command(&["PTTL", queue]).int();
        assert!(
            left == -2 || left >= 4_900,
            "the queue ends in {left} ms, {:?} after the start",
            began.elapsed()
        );
        tokio::time::sleep(50 * MS).await;
    }
    for task in tasks {
        task.abort();
    }
}
