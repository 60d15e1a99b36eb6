//! The next holder: a waiter that the release grants the lock to.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use lock_runtime::{LockGuard, LockManager};
use sqlx::postgres::PgListener;
use tokio::task::JoinHandle;

use super::{LONG, MS, client, url};
use crate::support::{
    postgres_server::PostgresServer,
    proxy::{Flow, Proxy, Upstream, Way},
    stopwatch::Moment,
    until,
};

pub(super) const CHANNEL: &str = "lock_40a8c6f599537c14";
/// SHA-256 of the lock's name, `k`.
pub(super) const LOCK: &str = "8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a";

pub(super) fn waiter(locks: &LockManager) -> JoinHandle<LockGuard> {
    let lock = locks.lock("k").ttl(LONG).wait(LONG);
    tokio::spawn(async move { lock.acquire().await.unwrap() })
}

/// A client that listens. One that does not cannot know that it may prepare statements, and without parameters its releases
/// show no secret.
pub(super) async fn listening(server: &PostgresServer, settings: &str) -> LockManager {
    let other = client(server).await;
    let guard = other.lock("listening").ttl(LONG).acquire().await.unwrap();
    let locks = LockManager::connect(&url(server, &format!("&create_table=true{settings}"))).await.unwrap();
    let lock = locks.lock("listening").wait(LONG);
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until("it is the next holder", || {
        let next = "SELECT next_owner FROM distributed_locks WHERE name = 'listening' AND next_until > clock_timestamp()";
        server.value(next).map(drop).ok_or(())
    })
    .await;
    guard.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    locks
}

/// Waits until a waiter is the next holder, and returns its owner.
pub(super) async fn next_owner(server: &PostgresServer) -> String {
    let next = "SELECT next_owner FROM distributed_locks WHERE name = 'k' AND next_until > clock_timestamp()";
    let mut owner = None;
    until("a waiter is the next holder", || {
        owner = server.value(next);
        owner.is_some().then_some(()).ok_or(())
    })
    .await;
    owner.unwrap()
}

pub(super) fn owner(server: &PostgresServer) -> Option<String> {
    server.value("SELECT owner FROM distributed_locks WHERE name = 'k' AND expires_at > clock_timestamp()")
}

pub(super) fn notify(server: &PostgresServer, text: &str) {
    server.query(&format!("NOTIFY \"{CHANNEL}\", '{LOCK} {text}'"));
}

pub(super) fn version(guard: &LockGuard) -> u64 {
    guard.fencing_token().micros()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_holds_the_lock_without_a_request_after_the_release() {
    let server = PostgresServer::start(&[]);
    let ours = listening(&server, "").await;
    let proxy = Proxy::start(Upstream::Unix(server.socket()));
    let theirs =
        LockManager::connect(&format!("postgres://postgres@{}/postgres", proxy.address())).await.unwrap();
    let guard = ours.lock("k").ttl(LONG).acquire().await.unwrap();
    let waiter = waiter(&theirs);
    let next = next_owner(&server).await;
    // From now on, the waiter can ask for nothing.
    proxy.set(Way::ToServer, Flow::Hold);
    let first = version(&guard);
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap();
    assert!(version(&guard) > first);
    let row = server
        .query("SELECT owner, next_until > clock_timestamp(), version, holder <> '' FROM distributed_locks WHERE name = 'k'");
    assert_eq!(
        row[0],
        [Some(next), Some("f".to_owned()), Some(version(&guard).to_string()), Some("t".to_owned())]
    );
    // The first renewal makes the lease as long as it was asked for.
    proxy.heal();
    let remaining = "SELECT extract(epoch FROM expires_at - clock_timestamp())::int FROM distributed_locks WHERE name = 'k'";
    until("it is renewed", || {
        let remaining: i64 = server.value(remaining).unwrap().parse().unwrap();
        if remaining > 10 { Ok(()) } else { Err(remaining) }
    })
    .await;
    guard.release().await.unwrap();
    assert_eq!(owner(&server), None);
}

/// Forty hand-overs between three clients, each of which holds the lock for long enough that the next one is in the row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_and_no_two_hold_the_lock_from_client_to_client() {
    let server = PostgresServer::start(&[]);
    let clients = [client(&server).await, client(&server).await, client(&server).await];
    let holders = Arc::new(AtomicU32::new(0));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let tasks = clients.map(|locks| {
        let (holders, seen) = (holders.clone(), seen.clone());
        tokio::spawn(async move {
            for _ in 0..14 {
                let guard = locks.lock("k").ttl(LONG).wait(LONG).acquire().await.unwrap();
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                seen.lock().unwrap().push(guard.fencing_token());
                tokio::time::sleep(20 * MS).await;
                assert_eq!(holders.fetch_sub(1, Ordering::SeqCst), 1);
                guard.release().await.unwrap();
            }
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 42);
    assert!(seen.is_sorted_by(|first, second| first < second), "{seen:?}");
}

/// The version and the secret of the next grant that is notified.
async fn granted(listener: &mut PgListener) -> (u64, String) {
    loop {
        // Clients also prove that notifications arrive, and a release without a next holder has no more to say.
        let notification = listener.recv().await.unwrap();
        let text =
            notification.payload().strip_prefix(LOCK).and_then(|text| text.trim_start().split_once(' '));
        if let Some((version, secret)) = text {
            return (version.parse().unwrap(), secret.to_owned());
        }
    }
}

async fn listener(server: &PostgresServer) -> PgListener {
    let mut listener = PgListener::connect_with(&super::pool(server)).await.unwrap();
    listener.listen(CHANNEL).await.unwrap();
    listener
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_and_repeated_notifications_let_no_waiter_in() {
    let server = PostgresServer::start(&[]);
    let (ours, theirs) = (listening(&server, "").await, client(&server).await);
    let mut listener = listener(&server).await;
    let guard = ours.lock("k").ttl(LONG).acquire().await.unwrap();
    let first = waiter(&theirs);
    next_owner(&server).await;
    guard.release().await.unwrap();
    let theirs_now = first.await.unwrap();
    let (version_now, secret) = granted(&mut listener).await;
    assert_eq!(version_now, version(&theirs_now));
    theirs_now.release().await.unwrap();
    // Another owner of the same client waits now.
    let guard = ours.lock("k").ttl(LONG).acquire().await.unwrap();
    let second = waiter(&theirs);
    next_owner(&server).await;
    for _ in 0..20 {
        // Later than the last request of the waiter, which is a proof of its place.
        let now = server.value("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint");
        let later: u64 = now.unwrap().parse().unwrap();
        for text in [
            format!("{later} {secret}"),
            format!("{version_now} {secret}"),
            format!("{later} {}", "0".repeat(32)),
            "8".into(),
        ] {
            notify(&server, &text);
            // A waiter reads only the last text.
            tokio::time::sleep(5 * MS).await;
        }
        assert!(!second.is_finished(), "it was let in");
    }
    guard.release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
}

/// The runtime of the waiter is blocked until its lease has ended and another client holds the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_was_paused_does_not_believe_an_old_grant() {
    let server = PostgresServer::start(&[]);
    let ours = client(&server).await;
    let guard = ours.lock("k").ttl(LONG).acquire().await.unwrap();
    let (address, (pause, paused)) = (url(&server, ""), mpsc::channel::<Duration>());
    let thread = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let locks = LockManager::connect(&address).await.unwrap();
            let waiter = waiter(&locks);
            while !waiter.is_finished() {
                if let Ok(length) = paused.try_recv() {
                    thread::sleep(length);
                }
                tokio::time::sleep(MS).await;
            }
            let guard = waiter.await.unwrap();
            let entered = Instant::now();
            guard.release().await.unwrap();
            entered
        })
    });
    let next = next_owner(&server).await;
    // It has read the answer.
    tokio::time::sleep(50 * MS).await;
    pause.send(4000 * MS).unwrap();
    tokio::time::sleep(100 * MS).await;
    guard.release().await.unwrap();
    assert_eq!(owner(&server), Some(next), "it was granted the lock");
    let guard = ours.lock("k").ttl(LONG).wait(LONG).acquire().await.unwrap();
    // Longer than the pause lasts.
    tokio::time::sleep(3000 * MS).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    let entered = tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap();
    assert!(entered > released, "it entered {:?} before the release", released - entered);
}

/// A release whose transaction takes long to end, as with a slow synchronous replica, grants a lease that began before the
/// waiter's last requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_not_dated_by_a_request_that_its_release_did_not_follow() {
    let server = PostgresServer::start(&[]);
    let slow = listening(&server, "&response_timeout=6s").await;
    let theirs = client(&server).await;
    let mut listener = listener(&server).await;
    let guard = slow.lock("k").ttl(LONG).auto_renew(false).acquire().await.unwrap();
    let waiter = waiter(&theirs);
    next_owner(&server).await;
    server.query(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(2.5); RETURN NEW; END'; CREATE \
         TRIGGER slow BEFORE UPDATE ON distributed_locks FOR EACH ROW WHEN (NEW.owner = OLD.next_owner AND OLD.next_until > \
         clock_timestamp()) EXECUTE FUNCTION slow()",
    );
    guard.release().await.unwrap();
    let (granted, _) = granted(&mut listener).await;
    let theirs = waiter.await.unwrap();
    assert!(version(&theirs) > granted, "it relies on a lease that has ended");
    theirs.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_was_dropped_is_granted_nothing() {
    let server = PostgresServer::start(&[]);
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let guard = ours.lock("k").ttl(LONG).acquire().await.unwrap();
    let dropped = waiter(&theirs);
    let next = next_owner(&server).await;
    dropped.abort();
    until("it has withdrawn", || {
        match server.value("SELECT next_until = '-infinity' FROM distributed_locks WHERE name = 'k'") {
            Some(has_withdrawn) if has_withdrawn == "t" => Ok(()),
            left => Err(left),
        }
    })
    .await;
    guard.release().await.unwrap();
    assert_eq!(owner(&server), None, "the lock has no waiter");
    // One that was granted the lock before it could withdraw.
    let guard = ours.lock("k").ttl(LONG).acquire().await.unwrap();
    let dropped = waiter(&theirs);
    assert_ne!(next_owner(&server).await, next);
    // The handle is dropped, too: a waiter that has finished by now has left its guard there.
    let (_, ()) = tokio::join!(guard.release(), async move { dropped.abort() });
    until("it has released the lock", || match owner(&server) {
        None => Ok(()),
        owner => Err(owner),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_died_keeps_the_others_waiting_for_two_seconds() {
    let server = PostgresServer::start(&[]);
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let guard = ours.lock("k").ttl(LONG).acquire().await.unwrap();
    let dead = "UPDATE distributed_locks SET next_owner = '00112233445566778899aabbccddeeff', next_lease = '2 s', \
                next_until = clock_timestamp() + interval '1.5 s' WHERE name = 'k'";
    server.query(dead);
    let waiter = waiter(&theirs);
    tokio::time::sleep(300 * MS).await;
    let released = Moment::now();
    guard.release().await.unwrap();
    assert_eq!(owner(&server).as_deref(), Some("00112233-4455-6677-8899-aabbccddeeff"));
    waiter.await.unwrap().release().await.unwrap();
    let free = released.took();
    assert!(free.real > 1900 * MS && free.within(3500 * MS), "{free:?}");
}

/// Without renewal, a lease has its whole length from the start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_does_not_renew_is_granted_the_whole_ttl() {
    let server = PostgresServer::start(&[]);
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let guard = ours.lock("k").ttl(LONG).acquire().await.unwrap();
    let lock = theirs.lock("k").ttl(LONG).auto_renew(false).wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    next_owner(&server).await;
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap();
    let remaining = "SELECT extract(epoch FROM expires_at - clock_timestamp())::int FROM distributed_locks";
    let remaining: i64 = server.value(remaining).unwrap().parse().unwrap();
    assert!(remaining > 15, "{remaining} s");
    guard.release().await.unwrap();
}

/// It is still the next holder when it takes the lock by itself, because the holder's lease has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_does_not_grant_the_lock_to_itself() {
    let server = PostgresServer::start(&[]);
    let (ours, theirs) = (client(&server).await, client(&server).await);
    for notified in [true, false] {
        let guard = ours.lock("k").ttl(LONG).auto_renew(false).acquire().await.unwrap();
        let waiter = waiter(&theirs);
        next_owner(&server).await;
        server.query("UPDATE distributed_locks SET expires_at = clock_timestamp()");
        if notified {
            server.query(&format!("NOTIFY \"{CHANNEL}\", '{LOCK}'"));
        }
        let theirs = waiter.await.unwrap();
        // Long enough for the release that grants the lock to the next holder.
        tokio::time::sleep(10 * MS).await;
        theirs.release().await.unwrap();
        assert_eq!(owner(&server), None, "notified: {notified}");
        guard.release().await.unwrap_err();
    }
}
