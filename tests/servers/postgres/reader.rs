//! Users that may read the table, the server's statistics or its log, and may change nothing.

use std::collections::BTreeSet;

use lock_runtime::{LockManager, backend::postgres::fence::CheckIn};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row, postgres::PgConnectOptions};

use super::{
    LONG, MS, client,
    next::{CHANNEL, LOCK, listening, next_owner, notify, owner, version, waiter},
};
use crate::support::{
    postgres_server::PostgresServer,
    proxy::{Flow, Proxy, Upstream, Way},
    until,
};

/// A user of the database with these rights.
async fn user(server: &PostgresServer, rights: &str) -> PgConnection {
    server.query(&format!("CREATE ROLE reader LOGIN; {rights}"));
    let options = PgConnectOptions::new().socket(server.folder()).username("reader").database("postgres");
    PgConnection::connect_with(&options).await.unwrap()
}

async fn read(reader: &mut PgConnection, query: &str) -> String {
    let rows = reader.fetch_all(sqlx::raw_sql(AssertSqlSafe(query.to_owned()))).await.unwrap();
    rows.iter().map(|row| row.get::<Option<String>, _>(0).unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

const ROW: &str = "SELECT l::text FROM distributed_locks l";
const STATISTICS: &str = "SELECT query FROM pg_stat_activity WHERE pid <> pg_backend_pid()";

/// All numbers of 128 bits in a text, as 32 digits.
fn numbers(text: &str) -> BTreeSet<String> {
    let text = text.replace('-', "");
    let words = text.split(|c: char| !c.is_ascii_hexdigit());
    words.filter(|word| word.len() == 32).map(str::to_lowercase).collect()
}

/// Sends whatever could count as a grant to a waiter that has seen this version in the row: the text of a grant, with each
/// number as the secret, and the one in which a hash proved the secret.
async fn forge(reader: &mut PgConnection, text: &str, seen: u64) {
    // Later than the last request of the waiter, which is a proof of its place.
    let now = || u64::try_from(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap();
    for secret in numbers(text) {
        for version in [|seen, _| seen + 1, |_, now| now, |_, now| now + 1_000_000_000_000] {
            for hashed in [false, true] {
                let version: u64 = version(seen, now());
                let proof = if hashed {
                    format!("encode(sha256(uuid_send('{secret}') || int8send({version})), 'hex')")
                } else {
                    format!("'{secret}'")
                };
                let sent = format!("SELECT pg_notify('{CHANNEL}', '{LOCK} {version} ' || {proof})");
                reader.execute(sqlx::raw_sql(AssertSqlSafe(sent))).await.unwrap();
                // A waiter sees the last one of several.
                tokio::time::sleep(10 * MS).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_may_only_read_lets_no_waiter_in() {
    let server = PostgresServer::start(&["log_min_duration_statement=0"]);
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let mut reader =
        user(&server, "GRANT SELECT ON distributed_locks TO reader; GRANT pg_monitor TO reader").await;
    let guard = ours.lock("k").ttl(LONG).acquire().await.unwrap();
    let waiter = waiter(&theirs);
    next_owner(&server).await;
    // Its renewals and requests show what they carry.
    tokio::time::sleep(500 * MS).await;
    let mut seen = read(&mut reader, ROW).await;
    assert!(numbers(&seen).len() >= 2, "{seen}");
    seen += &read(&mut reader, STATISTICS).await;
    seen += &server.log();
    forge(&mut reader, &seen, version(&guard)).await;
    assert!(guard.is_valid());
    assert!(!waiter.is_finished(), "a second holder next to the first");
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap();
    assert!(guard.fencing_token().get() < 1 << 62, "{}", guard.fencing_token());
    guard.release().await.unwrap();
}

/// The numbers in a text whose hash is this owner: its secret.
fn secrets(server: &PostgresServer, text: &str, owner: &str) -> Vec<String> {
    let hash = |number: &str| {
        server.value(&format!("SELECT left(encode(sha256(uuid_send('{number}')), 'hex'), 32)::uuid")).unwrap()
    };
    numbers(text).into_iter().filter(|number| hash(number) == owner).collect()
}

fn everything(server: &PostgresServer) -> String {
    let read = |query| server.query(query).into_iter().flatten().flatten().collect::<Vec<_>>().join("\n");
    [read(ROW), read(STATISTICS), server.log()].join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_secret_of_a_living_owner_stands_nowhere() {
    let server = PostgresServer::start(&["log_min_duration_statement=0", "log_statement=all"]);
    // A client whose statements are prepared, and one whose statements contain their arguments.
    for ours in [listening(&server, "").await, client(&server).await] {
        let theirs = client(&server).await;
        let guard = ours.lock("k").ttl(1500 * MS).acquire().await.unwrap();
        let holder = owner(&server).unwrap();
        // One that gives its place up, and one that stays.
        let dropped = waiter(&theirs);
        let withdrawn = next_owner(&server).await;
        dropped.abort();
        let next = loop {
            let waiter = waiter(&theirs);
            let next = next_owner(&server).await;
            if next != withdrawn {
                break (next, waiter);
            }
            waiter.abort();
        };
        // A renewal of the one, and requests of the other.
        tokio::time::sleep(1000 * MS).await;
        let (next, waiter) = next;
        let seen = everything(&server);
        for owner in [&holder, &next] {
            assert!(seen.contains(owner) || seen.contains(&owner.replace('-', "")), "{owner}");
            assert_eq!(secrets(&server, &seen, owner), [""; 0]);
        }
        guard.release().await.unwrap();
        let guard = waiter.await.unwrap();
        let seen = everything(&server);
        println!("secrets of the dead: {}", secrets(&server, &seen, &holder).len());
        assert_eq!(secrets(&server, &seen, &next), [""; 0]);
        guard.release().await.unwrap();
    }
}

/// The connection of the release dies with its statement. So no waiter is granted the lock, but the next holder believes that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_is_seen_before_its_release_is_applied_makes_no_second_holder() {
    let server = PostgresServer::start(&["log_statement=all"]);
    let through = |proxy: &Proxy| format!("postgres://postgres@{}/postgres", proxy.address());
    for round in 0.. {
        let (ours_to, theirs_to) =
            (Proxy::start(Upstream::Unix(server.socket())), Proxy::start(Upstream::Unix(server.socket())));
        let listens = listening(&server, "").await;
        let ours = LockManager::connect(&through(&ours_to)).await.unwrap();
        let theirs = LockManager::connect(&through(&theirs_to)).await.unwrap();
        for locks in [&ours, &theirs] {
            // As `listening` does.
            let guard = listens.lock("listening").ttl(LONG).acquire().await.unwrap();
            let lock = locks.lock("listening").wait(LONG);
            let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
            tokio::time::sleep(300 * MS).await;
            guard.release().await.unwrap();
            waiting.await.unwrap().release().await.unwrap();
        }
        server.query(
            "CREATE OR REPLACE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(30); RETURN NEW; \
             END'; CREATE TRIGGER slow BEFORE UPDATE ON distributed_locks FOR EACH ROW WHEN (OLD.name = 'k' AND \
             NEW.owner = OLD.next_owner) EXECUTE FUNCTION slow()",
        );
        let guard = ours.lock("k").ttl(1500 * MS).auto_renew(false).acquire().await.unwrap();
        let holder = owner(&server).unwrap();
        let next = waiter(&theirs);
        next_owner(&server).await;
        // From now on, the waiter can ask for nothing.
        theirs_to.set(Way::ToServer, Flow::Hold);
        let release = tokio::spawn(guard.release());
        let mut secret = None;
        until("the secret is in the log", || {
            secret = secrets(&server, &server.log(), &holder).pop();
            secret.is_some().then_some(()).ok_or(())
        })
        .await;
        ours_to.set(Way::ToServer, Flow::Hold);
        let secret = secret.unwrap();
        // Later than the waiter's place, and no later than the server's clock as far as the waiter knows.
        let now = server.query("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint");
        tokio::time::sleep(50 * MS).await;
        notify(&server, &format!("{} {secret}", now[0][0].as_deref().unwrap()));
        server.query(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE wait_event = 'PgSleep'",
        );
        server.query("DROP TRIGGER slow ON distributed_locks");
        let third = client(&server).await.lock("k").wait(LONG).acquire().await.unwrap();
        let is_let_in = next.is_finished();
        if is_let_in {
            let next = next.await.unwrap();
            assert!(!next.is_valid(), "a second holder for {:?} more", next.remaining());
        } else {
            next.abort();
        }
        third.release().await.unwrap();
        let _ = release.await;
        if is_let_in {
            break;
        }
        assert!(round < 5, "the machine is too slow for the test");
    }
}

/// The release is applied when the transaction ends, so nothing before may let the next holder in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_secret_of_a_holder_with_an_open_transaction_is_not_shown() {
    let server = PostgresServer::start(&["log_statement=all"]);
    let (ours, theirs) = (listening(&server, "").await, client(&server).await);
    let guard = ours.lock("k").ttl(LONG).acquire().await.unwrap();
    let holder = owner(&server).unwrap();
    let mut transaction = super::pool(&server).begin().await.unwrap();
    guard.check_in(&mut transaction).await.unwrap();
    let waiter = waiter(&theirs);
    next_owner(&server).await;
    drop(guard);
    tokio::time::sleep(500 * MS).await;
    assert_eq!(secrets(&server, &server.log(), &holder), [""; 0]);
    assert!(!waiter.is_finished());
    transaction.commit().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    assert_eq!(secrets(&server, &server.log(), &holder), [""; 0]);
}
