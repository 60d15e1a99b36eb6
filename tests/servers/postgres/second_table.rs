//! Two tables of locks in one database, which name the same locks and do not exclude each other.

use lock_runtime::LockManager;
use tracing::Level;

use crate::support::{postgres_server::PostgresServer, traces};

/// Two services with a schema each resolve one name to two tables, and would both hold each lock.
#[tokio::test]
async fn a_second_table_of_the_same_name_is_not_created_without_a_warning_that_names_both() {
    crate::watch_traces();
    let server = PostgresServer::start(&[]);
    let lines = |level| traces::tables_of(&server.folder().display().to_string(), level);
    for user in ["svc1", "svc2"] {
        server.query(&format!("CREATE ROLE {user} LOGIN; CREATE SCHEMA {user} AUTHORIZATION {user}"));
    }
    let connect = async |user: &str, rest: &str| {
        let folder = server.folder().display();
        let url = format!("postgres:///postgres?host={folder}&user={user}&create_table=true{rest}");
        LockManager::connect(&url).await.unwrap()
    };
    connect("svc1", "").await;
    assert!(lines(Level::INFO).iter().any(|line| line.contains("svc1.distributed_locks")));
    assert_eq!(lines(Level::WARN).len(), 0);
    // When it is created, and by each process that may be the one that took another one than was meant.
    for number in 1..=2 {
        connect("svc2", "").await;
        let warnings = lines(Level::WARN);
        assert_eq!(warnings.len(), number, "{warnings:?}");
        let last = warnings.last().unwrap();
        assert!(last.contains("svc1.distributed_locks") && last.contains("svc2.distributed_locks"), "{last}");
    }
    // With its schema, it is the one that was meant.
    connect("svc2", "&table=svc2.distributed_locks").await;
    assert_eq!(lines(Level::WARN).len(), 2);
    server.query("DROP TABLE svc2.distributed_locks");
    connect("svc2", "&table=svc2.distributed_locks").await;
    assert_eq!(lines(Level::WARN).len(), 3);
}
