//! Operators: what they see of a quorum, and how they take a lock from its holder.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use lock_runtime::{FencingToken, LockErrorKind, LockManager, backend::Redlock};

use super::{
    LONG, MS, Node, Quorum,
    rules::{published_user, with_user},
};
use crate::support::{
    proxy::{Flow, Proxy, Upstream, Way},
    repeat, until,
};

impl Quorum {
    /// A client with connections of its own to the servers.
    fn operator(&self) -> LockManager {
        let url = |node: &Node| format!("redis+unix://{}", node.server.socket().display());
        LockManager::new(Redlock::new(self.nodes.iter().map(url)).unwrap().durable())
    }
}

fn value(node: &Node) -> String {
    node.server.command(&["GET", "lock:k"]).text()
}

/// The number of times that a scan finds each lock.
async fn found(locks: &LockManager) -> BTreeMap<String, usize> {
    let (mut found, mut scan) = (BTreeMap::new(), locks.scan(""));
    while let Some(lock) = scan.next().await {
        *found.entry(lock.unwrap().key.as_str().to_owned()).or_default() += 1;
    }
    found
}

/// As an operator leaves it that crashes, or reaches one node alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_on_a_minority_revokes_nothing_and_is_repeated() {
    let quorum = Quorum::start(3);
    let (locks, operator) = (quorum.client().await, quorum.operator());
    let guard = locks.lock("k").ttl(1_500 * MS).acquire().await.unwrap();
    quorum.held_everywhere().await;
    let marked = value(&quorum.nodes[0]) + ":revoked";
    quorum.nodes[0].server.command(&["SET", "lock:k", &marked, "KEEPTTL"]);
    tokio::time::sleep(2_500 * MS).await;
    assert!(guard.is_valid());
    assert!(!operator.inspect("k").await.unwrap().holders[0].is_revoked());
    assert!(operator.revoke("k", guard.fencing_token()).await.unwrap());
    assert!(operator.inspect("k").await.unwrap().holders[0].is_revoked());
    let error = guard.run(std::future::pending::<()>()).await.unwrap_err();
    assert!(error.kind() == LockErrorKind::Lost && error.to_string().contains("revoked"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_out_of_reach_is_an_error_and_a_repeated_call_revokes() {
    let quorum = Quorum::start(3);
    let locks = quorum.client().await;
    let proxies: Vec<_> =
        quorum.nodes.iter().map(|node| Proxy::start(Upstream::Unix(node.server.socket().into()))).collect();
    let urls = proxies.iter().map(|proxy| format!("redis://{}", proxy.address()));
    let operator = LockManager::new(Redlock::new(urls).unwrap().durable());
    operator.ping().await.unwrap();
    let guard = locks.lock("k").ttl(LONG).acquire().await.unwrap();
    for proxy in &proxies[..2] {
        proxy.refuse();
        proxy.cut();
    }
    for result in [
        operator.inspect("k").await.map(drop),
        operator.revoke("k", guard.fencing_token()).await.map(drop),
        operator.revoke_by_force("k", guard.fencing_token()).await.map(drop),
        operator.scan("").next().await.expect("an answer").map(drop),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
    }
    assert!(guard.is_valid());
    proxies[1].heal();
    until("one node comes back", || Ok::<_, ()>(())).await;
    let began = Instant::now();
    while operator.inspect("k").await.is_err() {
        assert!(began.elapsed() < LONG, "it comes back");
        tokio::time::sleep(50 * MS).await;
    }
    assert!(operator.revoke("k", guard.fencing_token()).await.unwrap(), "two of three are enough");
    tokio::time::timeout(LONG, guard.lost()).await.expect("it is told");
}

/// After its lease has ended on a node, a renewal that was on its way when the lock was revoked must not bring it back there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_node_takes_a_revoked_lease_again() {
    let quorum = Quorum::start(3);
    let (locks, operator) = (quorum.client().await, quorum.operator());
    for is_forced in [false, true] {
        let guard = locks.lock("k").ttl(LONG).acquire().await.unwrap();
        quorum.held_everywhere().await;
        let token = guard.fencing_token();
        let revoked = if is_forced {
            operator.revoke_by_force("k", token).await
        } else {
            operator.revoke("k", token).await
        };
        assert!(revoked.unwrap());
        refuses_to_join(&quorum, token).await;
        drop(guard);
        quorum.free_everywhere().await;
    }
}

/// The nodes missed that the fence was raised. Renewals have told their counters alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_node_takes_a_lease_again_that_was_revoked_by_an_older_fence() {
    let quorum = Quorum::start(3);
    let (locks, operator) = (quorum.client().await, quorum.operator());
    let guard = locks.lock("k").ttl(LONG).acquire().await.unwrap();
    quorum.held_everywhere().await;
    let token = guard.fencing_token();
    let older = FencingToken::from_micros(token.micros() - 2);
    for node in &quorum.nodes {
        let missed = value(node).replace(&token.micros().to_string(), &older.micros().to_string());
        node.server.command(&["SET", "lock:k", &missed, "KEEPTTL"]);
    }
    assert!(operator.revoke("k", older).await.unwrap());
    refuses_to_join(&quorum, token).await;
    drop(guard);
    quorum.free_everywhere().await;
}

/// After the end of its lease, a node would give the owner of a revoked hold another one, without the mark.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acquisition_is_executed_after_the_lease_that_it_asks_for() {
    let quorum = Quorum::start(3);
    let (locks, late, ttl) = (quorum.client().await, &quorum.nodes[0], 250 * MS);
    let before = late.scripts();
    late.proxy.set(Way::ToServer, Flow::Hold);
    let guard = locks.lock("k").ttl(ttl).auto_renew(false).acquire().await.unwrap();
    // Sooner than after the timeout of a node.
    tokio::time::sleep(ttl + 50 * MS).await;
    late.proxy.set(Way::ToServer, Flow::Pass);
    until("it arrives", || if late.scripts() > before { Ok(()) } else { Err("no call") }).await;
    assert_eq!((late.counter(), late.holder()), (0, None));
    drop(guard);
}

async fn refuses_to_join(quorum: &Quorum, token: FencingToken) {
    until("each node refuses to join", || {
        let counters: Vec<_> = quorum.nodes.iter().map(Node::counter).collect();
        if counters.iter().all(|counter| *counter > token.micros()) { Ok(()) } else { Err(counters) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_minority_shows_is_no_holder_unless_the_others_are_silent() {
    let quorum = Quorum::start(3);
    let operator = quorum.operator();
    operator.ping().await.unwrap();
    for value in ["r1x:another:7:7:a,1@b", "foreign"] {
        quorum.nodes[0].server.command(&["SET", "lock:k", value, "PX", "60000"]);
        assert!(!operator.inspect("k").await.unwrap().is_held(), "{value}");
        assert_eq!(found(&operator).await, BTreeMap::new());
        for token in [Some(FencingToken::from_micros(7)), None] {
            assert!(!operator.revoke_by_force("k", token).await.unwrap(), "{value}");
        }
    }
    quorum.nodes[2].server.pause();
    let state = operator.inspect("k").await.unwrap();
    assert!(state.holders[0].is_foreign(), "with the silent node, it may have a majority: {state:?}");
    assert!(!operator.revoke_by_force("k", FencingToken::from_micros(7)).await.unwrap());
    assert!(operator.revoke_by_force("k", None).await.unwrap());
    assert!(!operator.inspect("k").await.unwrap().is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_holds_no_operator_up() {
    repeat(3, async || {
        let quorum = Quorum::start(3);
        let (locks, operator) = (quorum.client().await, quorum.operator());
        operator.ping().await.unwrap();
        let first = locks.lock("k").ttl(LONG).acquire().await.unwrap();
        quorum.held_everywhere().await;
        quorum.nodes[1].server.pause();
        let began = Instant::now();
        assert_eq!(operator.inspect("k").await.unwrap().holders[0].token(), Some(first.fencing_token()));
        assert!(found(&operator).await.contains_key("k"));
        assert!(operator.revoke("k", first.fencing_token()).await.unwrap());
        let revoked = Instant::now();
        tokio::time::timeout(LONG, first.lost()).await.expect("it is told");
        let told_after = revoked.elapsed();
        assert!(operator.revoke_by_force("k", first.fencing_token()).await.unwrap());
        let next = operator.lock("k").ttl(LONG).wait(LONG).acquire().await.unwrap();
        let took = began.elapsed();
        println!("{took:?} beside it");
        assert!(took < Duration::from_secs(5) + told_after, "{took:?}, told after {told_after:?}");
        next.release().await.unwrap();
        // A holder that misses the announcement, as it may, learns of the revocation at its next renewal.
        if took < Duration::from_secs(5) { Ok(()) } else { Err(format!("told after {told_after:?}")) }
    })
    .await;
}

/// The order to mark the lock is on its way while the holder releases it and another client acquires it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_that_is_executed_late_spares_the_next_holder() {
    let quorum = Quorum::start(3);
    let locks = quorum.client().await;
    for is_forced in [false, true] {
        let proxies: Vec<_> = quorum
            .nodes
            .iter()
            .map(|node| Proxy::start(Upstream::Unix(node.server.socket().into())))
            .collect();
        let urls = proxies.iter().map(|proxy| format!("redis://{}", proxy.address()));
        let operator = LockManager::new(Redlock::new(urls).unwrap().durable());
        operator.ping().await.unwrap();
        let guard = locks.lock("k").ttl(LONG).acquire().await.unwrap();
        quorum.held_everywhere().await;
        let token = guard.fencing_token();
        assert!(operator.inspect("k").await.unwrap().is_held());
        // The question who holds the lock takes 400 ms, and the order as long again.
        for proxy in &proxies {
            proxy.set(Way::ToServer, Flow::Delay(400 * MS));
        }
        let revoking = {
            let operator = operator.clone();
            tokio::spawn(async move {
                if is_forced {
                    operator.revoke_by_force("k", token).await
                } else {
                    operator.revoke("k", token).await
                }
            })
        };
        tokio::time::sleep(550 * MS).await;
        guard.release().await.unwrap();
        let next = locks.lock("k").ttl(LONG).acquire().await.unwrap();
        assert!(!revoking.await.unwrap().unwrap(), "it was not held any more");
        tokio::time::sleep(200 * MS).await;
        quorum.held_everywhere().await;
        assert!(quorum.nodes.iter().all(|node| !value(node).ends_with(":revoked")));
        assert!(next.is_valid());
        next.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_notice_ends_no_hold() {
    let quorum = Quorum::start(3);
    let locks = quorum.client().await;
    let guard = locks.lock("k").ttl(LONG).acquire().await.unwrap();
    quorum.held_everywhere().await;
    let node = &quorum.nodes[0].server;
    let before = node.calls("evalsha");
    for _ in 0..500 {
        for message in ["lock:k", "lock:other", "", "\u{0}\n"] {
            node.command(&["PUBLISH", "lock:~1:revoked", message]);
        }
    }
    until("the holder has asked", || match node.calls("evalsha") - before {
        0 => Err(()),
        _ => Ok(()),
    })
    .await;
    assert!(guard.is_valid());
    let calls = node.calls("evalsha") - before;
    assert!(calls < 100, "{calls} renewals after 500 notices");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_finds_each_lock_once_while_all_nodes_answer() {
    for nodes in [3, 5] {
        let quorum = Quorum::start(nodes);
        let locks = quorum.client().await;
        let mut guards = Vec::new();
        for number in 0..300 {
            guards.push(locks.lock(format!("k{number}")).ttl(LONG).acquire().await.unwrap());
        }
        // The last nodes are asked, too, but not waited for.
        tokio::time::sleep(200 * MS).await;
        quorum.nodes[0].server.command(&["SADD", "lock:set", "no lock"]);
        let found = found(&quorum.operator()).await;
        assert_eq!(found.len(), 300, "{found:?}");
        assert!(found.values().all(|times| *times == 1), "{found:?}");
    }
}

/// As after a restart, before the next renewal gives the lease to the node again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_the_first_node_lacks_is_found() {
    let quorum = Quorum::start(3);
    let (locks, operator) = (quorum.client().await, quorum.operator());
    let guard = locks.lock("k").ttl(LONG).acquire().await.unwrap();
    quorum.held_everywhere().await;
    quorum.nodes[0].server.command(&["DEL", "lock:k"]);
    assert_eq!(found(&operator).await.into_iter().collect::<Vec<_>>(), [("k".to_owned(), 1)]);
    guard.release().await.unwrap();
}

/// What one call costs does not depend on the number of locks: with 100,000, it was the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_of_many_locks_keeps_no_node_busy() {
    const FILL: &str = "for i = 1, 10000 do
        local name = 'lock:n' .. (ARGV[1] + i)
        redis.call('SET', name, 'r1x:' .. i .. ':' .. i .. ':1:program,1@host,label', 'PX', 600000)
        redis.call('SET', 'lock:{' .. name .. '}:~1:fence', i, 'PX', 600000)
      end";
    let quorum = Quorum::start(3);
    for node in &quorum.nodes {
        for part in 0..3 {
            node.server.command(&["EVAL", FILL, "0", &(part * 10_000).to_string()]);
        }
        node.server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "10000"]);
        node.server.command(&["CONFIG", "RESETSTAT"]);
        node.server.command(&["SLOWLOG", "RESET"]);
    }
    let began = Instant::now();
    let found = found(&quorum.operator()).await;
    println!("{:.1?} for a scan of {} locks", began.elapsed(), found.len());
    assert_eq!(found.len(), 30_000);
    for node in &quorum.nodes {
        let stats = node.server.command(&["INFO", "commandstats"]).text();
        let (mut calls, mut usec) = (0.0, 0.0);
        for line in stats.lines() {
            let is_ours = |command: &&str| line.starts_with(&format!("cmdstat_{command}:"));
            if !["scan", "evalsha", "eval"].iter().any(is_ours) {
                continue;
            }
            println!("{line}");
            let number = |name: &str| -> f64 {
                line.split(name).nth(1).and_then(|rest| rest.split(',').next()).unwrap().parse().unwrap()
            };
            calls += number("calls=");
            usec += number("usec=");
        }
        // In the mean, because this machine may take the processor from the server in the middle of a command.
        assert!(usec / calls < 5_000.0, "{stats}");
        println!("above 10 ms: {:?}", node.server.command(&["SLOWLOG", "LEN"]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_needs_one_more_right_for_a_scan_and_it_is_named() {
    let (servers, store) = with_user(&published_user());
    let locks = LockManager::new(store.durable());
    let guard = locks.lock("k").ttl(1_000 * MS).acquire().await.unwrap();
    assert_eq!(locks.inspect("k").await.unwrap().holders[0].token(), Some(guard.fencing_token()));
    let error = locks.scan("").next().await.expect("an answer").unwrap_err();
    let text = error.to_string();
    assert!(!error.is_retryable() && text.contains("ACL") && text.contains("scan"), "{text}");
    for server in &servers {
        server.command(&["ACL", "SETUSER", "locks", "+scan"]);
        // A name that this user may not read.
        server.command(&["SET", "lock:k2", "foreign"]);
        server.command(&["ACL", "SETUSER", "locks", "resetkeys", "~lock:k", "~lock:{lock:k}:*"]);
    }
    let found = found(&locks).await;
    assert_eq!(found.into_keys().collect::<Vec<_>>(), ["k"]);
    assert!(locks.revoke("k", guard.fencing_token()).await.unwrap());
    tokio::time::timeout(LONG, guard.lost()).await.expect("it is told");
    assert!(locks.revoke_by_force("k", guard.fencing_token()).await.unwrap());
}
