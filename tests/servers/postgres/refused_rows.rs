//! Statements that the server refuses: a release without room for its notification, and a row that may not be changed.

use std::time::{Duration, Instant};

use lock_runtime::{LockGuard, LockManager};

use super::{
    LONG, MS, client,
    next::{next_owner, owner, waiter},
};
use crate::support::{
    postgres_server::{PostgresServer, QUEUE_IS_FULL, USER},
    stopwatch::Moment,
    until,
};

/// How the server refuses a notification.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    /// The user has no right to send one.
    NotPermitted,
    InTheStatement,
    /// As a full queue does: all rows of the answer have been sent by then.
    AtItsCommit,
}

impl Refusal {
    const ALL: [Self; 3] = [Self::NotPermitted, Self::InTheStatement, Self::AtItsCommit];

    fn begins(self, server: &PostgresServer) {
        match self {
            Self::NotPermitted => {
                server.query("REVOKE EXECUTE ON FUNCTION pg_notify FROM PUBLIC");
            }
            Self::InTheStatement => server.refuse_notifications(),
            Self::AtItsCommit => {
                server.replace_notify("PERFORM set_config('test.told', 'yes', true);");
                server.query(&format!(
                    "CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                     IF current_setting('test.told', true) = 'yes' THEN {QUEUE_IS_FULL}; END IF; RETURN NULL; END $$; \
                     CREATE CONSTRAINT TRIGGER at_commit AFTER UPDATE ON distributed_locks \
                     DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit()"
                ));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_does_not_need_its_notification() {
    for (refusal, in_the_background) in
        Refusal::ALL.map(|refusal| [(refusal, false), (refusal, true)]).concat()
    {
        // Beside many other servers, a request of the waiter may be answered too late, and its place is then another
        // owner's, to which the release grants the lock in vain for two seconds.
        let mut waits = Vec::new();
        while waits.len() < 3 && waits.iter().all(|wait| *wait >= 1500 * MS) {
            waits.push(entered_without_a_notification(refusal, in_the_background).await);
        }
        println!("{refusal:?}: entered after {waits:?}");
        assert!(waits.iter().any(|wait| *wait < 1500 * MS), "{refusal:?}: {waits:?}");
    }
}

/// Returns how long after a release, whose notification is refused, a waiter enters.
async fn entered_without_a_notification(refusal: Refusal, in_the_background: bool) -> Duration {
    let server = PostgresServer::start(&[]);
    client(&server).await.shutdown().await;
    server.query(&format!("ALTER ROLE {USER} PASSWORD 'secret'; GRANT ALL ON distributed_locks TO {USER}"));
    let url = super::url(&server, "").replace("user=postgres", &format!("user={USER}&password=secret"));
    let ours = LockManager::connect(&url).await.unwrap();
    let theirs = LockManager::connect(&url).await.unwrap();
    let guard = ours.lock("k").ttl(LONG).acquire().await.unwrap();
    let waiter = waiter(&theirs);
    next_owner(&server).await;
    refusal.begins(&server);
    let released = Instant::now();
    if in_the_background {
        drop(guard);
    } else {
        guard.release().await.unwrap_or_else(|error| panic!("{refusal:?}: {error}"));
    }
    let guard = waiter.await.unwrap();
    let entered = released.elapsed();
    guard.release().await.unwrap();
    // For a moment only, and with no waiter known.
    ours.lock("short").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(owner(&server), None);
    entered
}

/// A trigger that refuses to change one row.
fn refuse(server: &PostgresServer, name: &str) {
    server.query(&format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not this row''; END'; \
         CREATE TRIGGER refuse BEFORE UPDATE ON distributed_locks FOR EACH ROW WHEN (OLD.name = '{name}') EXECUTE \
         FUNCTION refuse()"
    ));
}

/// Two hundred locks, whose renewals are due at the same time.
async fn many(locks: &LockManager) -> Vec<LockGuard> {
    let acquired = (0..200).map(|number| {
        let lock = locks.lock(format!("lock {number}"));
        tokio::spawn(async move { lock.acquire().await.unwrap() })
    });
    let mut guards = Vec::new();
    for guard in acquired.collect::<Vec<_>>() {
        guards.push(guard.await.unwrap());
    }
    guards
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_row_that_may_not_be_changed_is_the_only_one_whose_lease_is_lost() {
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await.ttl(2000 * MS);
    let guards = many(&locks).await;
    refuse(&server, "lock 77");
    tokio::time::sleep(4000 * MS).await;
    let lost: Vec<_> =
        guards.iter().filter(|guard| !guard.is_valid()).map(|guard| guard.key().to_string()).collect();
    assert_eq!(lost, ["lock 77"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_row_that_may_not_be_changed_is_the_only_one_that_is_not_released() {
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await.ttl(LONG);
    let guards = many(&locks).await;
    refuse(&server, "lock 77");
    let dropped = Moment::now();
    drop(guards);
    let left = "SELECT string_agg(name, ', ') FROM distributed_locks WHERE owner IS NOT NULL";
    until("the others are released", || match server.value(left) {
        Some(left) if left == "lock 77" => Ok(()),
        left => Err(left),
    })
    .await;
    println!("released after {:?}", dropped.took());
    assert!(dropped.within(2000 * MS), "{:?}", dropped.took());
}
