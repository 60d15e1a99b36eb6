//! `redlock:`, npm's redlock and Go's redsync on the same three servers, of which a majority decides.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use lock_runtime::{FencingToken, LockManager};

use super::{super::LONG, Contender, KEY, MS, NAME, Site, Waits, connect, redlock, redsync, seconds};
use crate::support::{redis_server::RedisServer, resp::Value, until};

const NODES: usize = 3;
/// An order by which a contender enters once, for a second.
const ONCE: &str = "1 0.001";

/// The value of the lock's key.
fn holder(node: &RedisServer) -> Option<String> {
    match node.command(&["GET", KEY]) {
        Value::Text(holder) => Some(holder),
        _ => None,
    }
}

fn lease(node: &RedisServer) -> i64 {
    node.command(&["PTTL", KEY]).int()
}

/// Number of reads, also by scripts: each compare-and-delete reads the key, and none of their acquisitions does.
fn reads(node: &RedisServer) -> u64 {
    node.calls("get")
}

impl Site {
    async fn client(&self) -> LockManager {
        connect(&self.sockets()).await
    }

    /// The holder on each node: the whole text of theirs, and owner and fence of ours. The rest differs between the nodes.
    fn holders(&self) -> Vec<Option<String>> {
        let beginning = |text: String| text.split(':').take(3).collect::<Vec<_>>().join(":");
        self.servers.iter().map(|server| holder(server).map(beginning)).collect()
    }

    /// Waits until all nodes have one holder, and returns it on each.
    async fn held(&self) -> Vec<Option<String>> {
        until("all nodes have one holder", || match self.holders() {
            holders if holders[0].is_some() && holders.iter().all(|one| *one == holders[0]) => Ok(()),
            holders => Err(holders),
        })
        .await;
        self.holders()
    }
}

fn waited(contender: &Contender) -> Duration {
    let answer = contender.answer(LONG);
    Waits::read(answer.strip_prefix("waited ").expect("it ends with its waits")).longest()
}

/// One process of each, until there are 5,000 entries. In each of at least three rounds another one is there first.
#[test]
#[ignore = "needs what `tests/run interop` installs"]
fn five_thousand_entries_under_one_quorum_lose_nothing() {
    const ENTRIES: usize = 5_000;
    const NAMES: [&str; 3] = ["ours", "redlock", "redsync"];
    let site = Site::of(NODES);
    let began = Instant::now();
    let mut waits = NAMES.map(|_| Vec::new());
    for round in 0.. {
        if site.entries() >= ENTRIES && round >= NAMES.len() {
            break;
        }
        let first = round % NAMES.len();
        let mut contenders =
            [site.ours(1), site.theirs(redlock()), site.theirs(redsync())].map(|contender| (contender, MS));
        contenders.rotate_left(first);
        let mut of_round = site.run(&mut contenders, Duration::from_secs(seconds()));
        of_round.rotate_right(first);
        for (waits, of_round) in waits.iter_mut().zip(of_round) {
            waits.push(of_round);
        }
    }
    println!("{} entries in {:.1?}", site.entries(), began.elapsed());
    for (name, waits) in NAMES.iter().zip(&waits) {
        let rounds: Vec<_> = waits.iter().map(Waits::entries).collect();
        println!("{name}: {}; entries of each round: {rounds:?}", Waits::all(waits));
        assert!(rounds.iter().all(|entries| *entries > 0), "{name} did not enter");
    }
}

/// A foreign holder excludes us, and our attempts change neither its value nor its lease.
async fn theirs_excludes_ours(theirs: Command) {
    let site = Site::of(NODES);
    let locks = site.client().await;
    let mut contender = site.theirs(theirs);
    contender.tell(ONCE);
    let held = site.held().await;
    let mut leases: Vec<_> = site.servers.iter().map(lease).collect();
    for _ in 0..50 {
        assert!(locks.lock(NAME).try_acquire().await.unwrap().is_none());
        assert_eq!(site.holders(), held);
        for (node, before) in site.servers.iter().zip(&mut leases) {
            let left = lease(node);
            assert!(left > 0 && left <= *before, "{before} ms, then {left} ms");
            *before = left;
        }
    }
    assert_eq!(site.entries(), 0, "its section was over before");
    let began = Instant::now();
    let guard = locks.lock(NAME).wait(LONG).acquire().await.unwrap();
    println!("ours waited {:.1?}", began.elapsed());
    assert_eq!(site.entries(), 1, "we entered beside it");
    // Its release, which needs a majority, has succeeded.
    waited(&contender);
    guard.release().await.unwrap();
}

/// We exclude a foreign client, and its compare-and-delete, with which it ends a refused attempt, leaves our keys.
async fn ours_excludes_theirs(theirs: Command) {
    let site = Site::of(NODES);
    let locks = site.client().await;
    // Not renewed meanwhile: renewals read the key, too.
    let guard = locks.lock(NAME).ttl(LONG).acquire().await.unwrap();
    let held = site.held().await;
    let fence = held[0].as_ref().and_then(|value| value.split(':').nth(2)).expect("owner and fence");
    assert_eq!(FencingToken::from_micros(fence.parse().unwrap()), guard.fencing_token());
    let before: Vec<_> = site.servers.iter().map(reads).collect();
    let mut contender = site.theirs(theirs);
    let began = Instant::now();
    contender.tell(ONCE);
    // The second one follows a whole attempt later than the first.
    until("it tried to delete the key twice on each node", || {
        let more = site.servers.iter().map(reads).zip(&before).map(|(now, before)| now - before);
        let more: Vec<_> = more.collect();
        if more.iter().all(|reads| *reads >= 2) { Ok(()) } else { Err(more) }
    })
    .await;
    assert_eq!(site.holders(), held);
    assert_eq!(site.entries(), 0, "it entered beside us");
    assert!(guard.is_valid());
    let held_for = began.elapsed();
    guard.release().await.unwrap();
    let wait = waited(&contender);
    println!("theirs waited {wait:.1?}, of which {held_for:.1?} for us");
    assert!(wait + 100 * MS >= held_for, "{wait:?}");
    assert_eq!(site.entries(), 1);
}

#[tokio::test]
#[ignore = "needs what `tests/run interop` installs"]
async fn on_a_quorum_redlock_excludes_us() {
    theirs_excludes_ours(redlock()).await;
}

#[tokio::test]
#[ignore = "needs what `tests/run interop` installs"]
async fn on_a_quorum_redsync_excludes_us() {
    theirs_excludes_ours(redsync()).await;
}

#[tokio::test]
#[ignore = "needs what `tests/run interop` installs"]
async fn on_a_quorum_we_exclude_redlock() {
    ours_excludes_theirs(redlock()).await;
}

#[tokio::test]
#[ignore = "needs what `tests/run interop` installs"]
async fn on_a_quorum_we_exclude_redsync() {
    ours_excludes_theirs(redsync()).await;
}
