//! The table: how it is made, who may use it, what is in it, and what is removed.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use lock_runtime::{LockErrorKind, LockManager, backend::Postgres, backend::postgres::TABLE};

use super::{LONG, MS, client, pool, url};
use crate::support::{
    postgres_server::{PostgresServer, USER},
    until,
};

#[tokio::test]
async fn a_missing_table_or_right_is_one_sentence_with_the_statement_to_run() {
    let server = PostgresServer::start(&[]);
    let error = LockManager::connect(&url(&server, "")).await.unwrap_err();
    assert!(error.is_permanent() && error.kind() == LockErrorKind::Backend, "{error}");
    let (_, ddl) =
        error.to_string().split_once("create it with: ").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    server.query(&ddl);
    LockManager::connect(&url(&server, "")).await.unwrap();

    server.query(&format!("ALTER ROLE {USER} PASSWORD 'secret'"));
    let of_user =
        |rest: &str| url(&server, rest).replace("user=postgres", &format!("user={USER}&password=secret"));
    let error = LockManager::connect(&of_user("")).await.unwrap_err();
    assert!(error.is_permanent(), "{error}");
    let (_, grant) =
        error.to_string().split_once("can allow it: ").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    server.query(&grant);
    let locks = LockManager::connect(&of_user("")).await.unwrap();
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();

    // Taken away while it is used.
    server.query(&format!("REVOKE UPDATE ON distributed_locks FROM {USER}"));
    let error = locks.lock("k").wait(LONG).acquire().await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("GRANT SELECT"), "{error}");

    // It may not create one, either.
    let error = LockManager::connect(&of_user("&table=more_locks&create_table=true")).await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("cannot be created"), "{error}");
    assert!(error.to_string().contains("CREATE TABLE"), "{error}");
}

#[tokio::test]
async fn a_refused_renewal_is_the_reason_of_the_loss() {
    let server = PostgresServer::start(&[]);
    server.query(TABLE);
    server.query(&format!(
        "ALTER ROLE {USER} PASSWORD 'secret'; GRANT SELECT, INSERT, UPDATE, DELETE ON distributed_locks TO {USER}"
    ));
    let url = url(&server, "").replace("user=postgres", &format!("user={USER}&password=secret"));
    let locks = LockManager::connect(&url).await.unwrap();
    let guard = locks.lock("k").ttl(1500 * MS).acquire().await.unwrap();
    server.query(&format!("REVOKE UPDATE ON distributed_locks FROM {USER}"));
    let error = guard.run(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost);
    let text = error.to_string();
    assert!(text.contains("its renewals failed: ") && text.contains("GRANT"), "{text}");
}

#[tokio::test]
async fn the_published_statement_makes_the_table() {
    let server = PostgresServer::start(&[]);
    server.query(TABLE);
    LockManager::connect(&url(&server, "")).await.unwrap();
    // Many create it at once.
    let clients = (0..8).map(|_| {
        let url = url(&server, "&table=at_once&create_table=true");
        tokio::spawn(async move { LockManager::connect(&url).await.map(drop) })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap().unwrap();
    }
    server.query("CREATE SCHEMA app");
    let locks = LockManager::connect(&url(&server, "&table=app.locks&create_table=true")).await.unwrap();
    let guard = locks.lock("k").acquire().await.unwrap();
    assert_eq!(server.value("SELECT name FROM app.locks").as_deref(), Some("k"));
    guard.release().await.unwrap();
    let locks = LockManager::new(Postgres::from_pool_with_table(pool(&server), "app.locks").unwrap());
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    // A table of something else.
    server.query("CREATE TABLE other (name text)");
    let error = LockManager::connect(&url(&server, "&table=other")).await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("other columns"), "{error}");
}

#[tokio::test]
async fn a_table_of_an_earlier_version_is_an_error_that_says_how_to_replace_it() {
    let server = PostgresServer::start(&[]);
    server.query(TABLE);
    server.query("ALTER TABLE distributed_locks DROP COLUMN revoked, DROP COLUMN session");
    for scheme in ["postgres:", "postgres+advisory:"] {
        let url = url(&server, "&create_table=true").replace("postgres:", scheme);
        let error = LockManager::connect(&url).await.unwrap_err();
        assert!(error.is_permanent() && error.to_string().contains("it has no revoked, session"), "{error}");
        let text = error.to_string();
        let (_, remedy) = text.split_once("(DROP TABLE ").expect("it says how");
        let (table, rest) = remedy.split_once(";)").expect("a statement");
        let (_, ddl) = rest.split_once("create it with: ").expect("it says how");
        server.query(&format!("BEGIN; DROP TABLE {table}; {ddl}"));
        server.query("COMMIT");
        LockManager::connect(&url).await.unwrap();
        server.query("ALTER TABLE distributed_locks DROP COLUMN revoked, DROP COLUMN session");
    }
}

#[tokio::test]
async fn a_server_that_may_forget_what_it_confirmed_is_refused_if_that_is_wanted() {
    let server = PostgresServer::start(&[]);
    let strict = |rest: &str| url(&server, &format!("&create_table=true&strict=true{rest}"));
    let error = LockManager::connect(&strict("")).await.unwrap_err();
    assert!(error.to_string().contains("fsync is off"), "{error}");
    let server = PostgresServer::start(&["fsync=on"]);
    let strict = |rest: &str| url(&server, &format!("&create_table=true&strict=true{rest}"));
    LockManager::connect(&strict("")).await.unwrap();
    let error = LockManager::connect(&strict("&options[synchronous_commit]=off")).await.unwrap_err();
    assert!(error.to_string().contains("unknown setting"), "{error}");
    let error = LockManager::connect(&strict("&options=-c%20synchronous_commit%3Doff")).await.unwrap_err();
    assert!(error.to_string().contains("synchronous_commit is off"), "{error}");
    server.query("ALTER TABLE distributed_locks SET UNLOGGED");
    let error = LockManager::connect(&strict("")).await.unwrap_err();
    assert!(error.to_string().contains("not logged"), "{error}");
}

/// A server whose transactions are read-only, as a replica's are, and then no more.
#[tokio::test]
async fn a_server_that_takes_no_changes_is_used_again_when_it_does() {
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    let read_only = |on: &str| {
        server.query(&format!("ALTER SYSTEM SET default_transaction_read_only = {on}"));
        server.query("SELECT pg_reload_conf()");
    };
    read_only("on");
    until("it takes no changes", || match server.value("SHOW default_transaction_read_only").as_deref() {
        Some("on") => Ok(()),
        other => Err(other.map(str::to_owned)),
    })
    .await;
    // Each process of the server reads the settings anew when its signal arrives.
    let mut refused = None;
    for _ in 0..100 {
        match locks.lock("k").wait(100 * MS).acquire().await {
            Ok(guard) => guard.release().await.unwrap_or_default(),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    let error = refused.expect("it takes no changes");
    assert_eq!(error.kind(), LockErrorKind::Backend);
    assert!(error.to_string().contains("primary") && error.is_retryable(), "{error}");
    let lock = locks.lock("k").wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
    tokio::time::sleep(100 * MS).await;
    // Over a session that began before.
    let mut session = server.session();
    session.query("SET default_transaction_read_only = off").unwrap();
    session.query("ALTER SYSTEM RESET default_transaction_read_only").unwrap();
    session.query("SELECT pg_reload_conf()").unwrap();
    waiter.await.unwrap();
}

#[tokio::test]
async fn names_are_compared_byte_by_byte_and_mean_nothing_in_sql() {
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    let names =
        ["a", "A", "ä", "a ", "'; DROP TABLE distributed_locks; --", "$1", "\\x00", "%_", "🔒", "{a}"];
    let mut guards = Vec::new();
    for name in names {
        guards.push(locks.lock(name).try_acquire().await.unwrap().expect("another lock"));
    }
    let rows = server.query("SELECT name, holder FROM distributed_locks WHERE owner IS NOT NULL");
    assert_eq!(rows.len(), names.len());
    for row in rows {
        assert!(names.contains(&row[0].as_deref().unwrap()));
        assert!(row[1].as_deref().unwrap().contains(&format!(",{}@", std::process::id())), "{row:?}");
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(
        server.value("SELECT count(*) FROM distributed_locks WHERE owner IS NOT NULL").as_deref(),
        Some("0")
    );
}

#[tokio::test]
async fn rows_of_locks_that_were_not_used_for_long_are_removed_and_no_others() {
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    let fill = "INSERT INTO distributed_locks (name, version, expires_at) SELECT 'old ' || n, 1, now() - interval '49 h' FROM \
                generate_series(1, 1500) n; INSERT INTO distributed_locks (name, version, expires_at) SELECT 'young ' || n, 1, \
                now() - interval '47 h' FROM generate_series(1, 100) n";
    server.query(fill);
    let count = |like: &str| {
        server.value(&format!("SELECT count(*) FROM distributed_locks WHERE name LIKE '{like} %'"))
    };
    // Six pages, each after 128 new rows.
    for number in 0..(128 * 8) {
        locks.lock(format!("k{number}")).acquire().await.unwrap().release().await.unwrap();
    }
    until("the old ones are gone", || match count("old").as_deref() {
        Some("0") => Ok(()),
        other => Err(other.map(str::to_owned)),
    })
    .await;
    assert_eq!(count("young").as_deref(), Some("100"));
    assert_eq!(
        server.value("SELECT count(*) FROM distributed_locks WHERE name LIKE 'k%'").as_deref(),
        Some("1024")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_may_not_be_removed_is_the_only_old_one_that_stays() {
    let server = PostgresServer::start(&[]);
    let rows = client(&server).await;
    let advisory = url(&server, "").replace("postgres:", "postgres+advisory:");
    let advisory = LockManager::connect(&advisory).await.unwrap();
    server.query(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not this row''; END'; \
         CREATE TRIGGER refuse BEFORE DELETE ON distributed_locks FOR EACH ROW WHEN (OLD.name = 'old 77') EXECUTE FUNCTION \
         refuse()",
    );
    for locks in [rows, advisory] {
        let fill = "INSERT INTO distributed_locks (name, version, expires_at) SELECT 'old ' || n, 1, now() - interval '49 h' \
                    FROM generate_series(1, 1500) n ON CONFLICT DO NOTHING";
        server.query(fill);
        for number in 0..(128 * 10) {
            locks.lock(format!("k{number}")).acquire().await.unwrap().release().await.unwrap();
        }
        let old = "SELECT string_agg(name, ', ') FROM distributed_locks WHERE name LIKE 'old %'";
        until("the others are removed", || match server.value(old) {
            Some(left) if left == "old 77" => Ok(()),
            left => Err(left.map(|left| left.chars().take(100).collect::<String>())),
        })
        .await;
    }
}

/// The version rises even if the clock has been set back since the last grant.
#[tokio::test]
async fn tokens_rise_beyond_a_version_from_the_future() {
    let server = PostgresServer::start(&[]);
    let locks = client(&server).await;
    let first = locks.lock("k").acquire().await.unwrap();
    let token = first.fencing_token();
    first.release().await.unwrap();
    server.query("UPDATE distributed_locks SET version = version + 3600000000");
    let next = locks.lock("k").acquire().await.unwrap();
    assert!(next.fencing_token().get() > token.get() + (3_600_000_000 << 11), "{next:?}");
    next.release().await.unwrap();
    server.query("UPDATE distributed_locks SET version = 4503599627370495");
    let error = locks.lock("k").wait(LONG).acquire().await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("used up"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_forty_that_want_one_row_one_wins_each_time() {
    let server = PostgresServer::start(&[]);
    forty_that_want_one_row(&server).await;
}

/// In this isolation, a statement fails if it meets another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_forty_one_wins_each_time_where_all_transactions_are_serializable() {
    let server = PostgresServer::start(&["default_transaction_isolation=serializable"]);
    forty_that_want_one_row(&server).await;
    assert!(server.log().contains("could not serialize"), "no two statements met");
}

/// Forty clients of their own, without a queue in the process.
async fn forty_that_want_one_row(server: &PostgresServer) {
    client(server).await.shutdown().await;
    let inside = Arc::new(AtomicU32::new(0));
    let tasks = (0..40).map(|_| {
        let (url, inside) = (url(server, "&connections=1"), Arc::clone(&inside));
        tokio::spawn(async move {
            let locks = LockManager::connect(&url).await.unwrap();
            let mut tokens = Vec::new();
            for _ in 0..10 {
                let guard = locks.lock("k").wait(LONG * 3).acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                tokens.push(guard.fencing_token());
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
            assert!(tokens.is_sorted());
            tokens
        })
    });
    let mut tokens = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        tokens.extend(task.await.unwrap());
    }
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 400, "each token is one holder's");
    let deadlocks = server.value("SELECT sum(deadlocks) FROM pg_stat_database");
    assert_eq!(deadlocks.as_deref(), Some("0"));
}
