//! Who gets a lock that many want: the nodes have no queue.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use lock_runtime::LockErrorKind;

use super::{LONG, MS, Quorum};
use crate::support::{
    proxy::{Flow, Way},
    stopwatch::{Moment, most_within},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_behind_a_bare_majority_do_not_wake_each_other() {
    let quorum = Quorum::start(3);
    let locks = quorum.client().await;
    let guard = locks.lock("k").ttl(LONG).acquire().await.unwrap();
    quorum.held_everywhere().await;
    // Another client may have had it there for a moment.
    quorum.nodes[2].server.command(&["DEL", "lock:k"]);
    let (first, second) = (quorum.client().await, quorum.client().await);
    let (before, waited) = (quorum.nodes[2].scripts(), 2_000 * MS);
    let [first, second] = [&first, &second].map(|locks| locks.lock("k").wait(waited));
    let (first, second) = tokio::join!(first.acquire(), second.acquire());
    for refused in [first, second] {
        assert_eq!(refused.map(drop).unwrap_err().kind(), LockErrorKind::Timeout);
    }
    // Each asks about nine times, and gives back what it got.
    let scripts = quorum.nodes[2].scripts() - before;
    assert!(scripts < 100, "{scripts} scripts in {waited:?}");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_gets_in_beside_one_with_many_tasks() {
    for way in [Duration::ZERO, 10 * MS] {
        let quorum = Quorum::start(3);
        let (busy, other) = (quorum.client().await, quorum.client().await);
        for node in &quorum.nodes {
            node.proxy.set(Way::ToServer, Flow::Delay(way));
        }
        let over = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..16)
            .map(|_| {
                let (lock, over) = (busy.lock("k").wait(LONG), Arc::clone(&over));
                tokio::spawn(async move {
                    let mut count = 0_u32;
                    while !over.load(Ordering::Relaxed) {
                        lock.acquire().await.unwrap().release().await.unwrap();
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let mut waits = Vec::new();
        for _ in 0..20 {
            tokio::time::sleep(20 * MS).await;
            let began = Moment::now();
            other.lock("k").wait(LONG).acquire().await.unwrap().release().await.unwrap();
            waits.push(began.took());
        }
        over.store(true, Ordering::Relaxed);
        let mut theirs = 0;
        for task in tasks {
            theirs += task.await.unwrap();
        }
        println!("with {way:?} to the nodes: waited {waits:?}, beside {theirs} cycles");
        assert!(most_within(&waits, 300 * MS), "{way:?}: {waits:?}");
        assert!(waits.iter().all(|wait| wait.within(3_000 * MS)), "{way:?}: {waits:?}");
        assert!(theirs > 500, "{way:?}: the others had {theirs} cycles");
    }
}

/// As a client leaves it that crashes in its round. The third node is too far away for a round that is divided; all the same
/// the two that would grant the lock are a majority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_left_on_a_near_node_keeps_no_client_out() {
    let quorum = Quorum::start(3);
    let locks = quorum.client().await;
    quorum.nodes[0].server.command(&["SET", "lock:k", "r1x:another:1:1:a,1@b", "PX", "60000"]);
    quorum.nodes[2].proxy.set(Way::ToClient, Flow::Delay(100 * MS));
    for _ in 0..2 {
        let (began, before) = (Instant::now(), quorum.nodes[1].scripts());
        locks.lock("k").wait(LONG).acquire().await.unwrap().release().await.unwrap();
        let (took, scripts) = (began.elapsed(), quorum.nodes[1].scripts() - before);
        println!("{took:?} beside it, and {scripts} scripts on the free node");
        assert!(took < 5_000 * MS, "{took:?}");
        // After a divided round, the node that has the other lease is asked first.
        assert!(scripts < 40, "{scripts} scripts on the free node in {took:?}");
    }
    assert_eq!(quorum.holders()[0], Some("r1x:another".into()));
}

/// As after a round in which each of three clients got one node, before the others have given theirs back: a majority
/// refuses, and no client holds the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_divided_and_then_free_is_not_waited_for() {
    let quorum = Quorum::start(3);
    let locks = quorum.client().await;
    let mut waits = Vec::new();
    for _ in 0..10 {
        for node in &quorum.nodes[1..] {
            node.server.command(&["SET", "lock:k", "r1x:another:1:1:a,1@b", "PX", "60000"]);
        }
        let before = quorum.nodes[0].scripts();
        let lock = locks.lock("k").wait(LONG);
        let waiter = tokio::spawn(async move { lock.acquire().await });
        // A waiter asks twice before it waits, and each time gives back the node that it got.
        while quorum.nodes[0].scripts() < before + 4 {}
        quorum.nodes[1..].iter().for_each(|node| _ = node.server.command(&["DEL", "lock:k"]));
        let free = Instant::now();
        waiter.await.unwrap().unwrap().release().await.unwrap();
        waits.push(free.elapsed());
    }
    // A holder's release is announced, and otherwise asked about after 150 ms.
    let at_once = waits.iter().filter(|wait| **wait < 100 * MS).count();
    println!("{waits:?}");
    assert!(at_once >= 5, "{waits:?}");
}

/// Under contention, too, the lease that a client left on the node that is asked first keeps no client out: the clients
/// divide the other two nodes, and that node refuses all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_left_on_the_first_node_does_not_stop_clients_that_contend() {
    let quorum = Quorum::start(3);
    quorum.nodes[0].server.command(&["SET", "lock:k", "r1x:another:1:1:a,1@b", "PX", "60000"]);
    let mut tasks = Vec::new();
    let began = Instant::now();
    for _ in 0..3 {
        let lock = quorum.client().await.lock("k").ttl(LONG).wait(LONG);
        tasks.push(tokio::spawn(async move {
            let mut entries = 0;
            while began.elapsed() < 3_000 * MS {
                let guard = lock.acquire().await.unwrap();
                tokio::time::sleep(MS).await;
                guard.release().await.unwrap();
                entries += 1;
            }
            entries
        }));
    }
    let mut entries = 0;
    for task in tasks {
        entries += task.await.unwrap();
    }
    println!("{entries} entries in {:?}", began.elapsed());
    assert!(entries > 60, "{entries} entries in {:?}", began.elapsed());
}

/// A client knows of its own release first. The others are to have the lock next all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_has_released_leaves_the_lock_to_those_that_wait() {
    let quorum = Quorum::start(3);
    let (entries, wanted) = (Arc::new(Mutex::new(Vec::new())), 200);
    let mut clients = Vec::new();
    for client in 0..3 {
        let (lock, entries) = (quorum.client().await.lock("k").wait(LONG), Arc::clone(&entries));
        clients.push(tokio::spawn(async move {
            while entries.lock().unwrap().len() < wanted {
                let guard = lock.acquire().await.unwrap();
                entries.lock().unwrap().push(client);
                tokio::time::sleep(MS).await;
                guard.release().await.unwrap();
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    let entries = entries.lock().unwrap();
    let again = entries.windows(2).filter(|pair| pair[0] == pair[1]).count();
    println!("{again} of {} entries by the client that had just released", entries.len());
    assert!(again < wanted / 5, "{again} of {}: {entries:?}", entries.len());
}

#[tokio::test]
async fn keys_without_an_expiry_on_a_majority_are_named_as_the_cause() {
    let quorum = Quorum::start(3);
    let locks = quorum.client().await;
    // A round that two nodes have refused does not wait for the third one, so all three or one at most.
    for (endless, is_named) in [(0, false), (1, false), (3, true)] {
        for (number, node) in quorum.nodes.iter().enumerate() {
            let set = ["SET", "lock:k", "foreign", "PX", "60000"];
            node.server.command(if number < endless { &set[..3] } else { &set });
        }
        for wait in [Duration::ZERO, 300 * MS] {
            let text = locks.lock("k").wait(wait).acquire().await.unwrap_err().to_string();
            assert_eq!(text.contains("set no expiry: it will not end by itself"), is_named, "{text}");
        }
    }
}
