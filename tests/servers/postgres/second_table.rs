//! Two tables of locks in one database, which name the same locks and do not exclude each other.

use std::{
    fmt::{Debug, Write as _},
    sync::Mutex,
};

use lock_runtime::LockManager;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

use crate::support::postgres_server::PostgresServer;

/// What is logged about tables, by all tests of this program.
static LINES: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

struct Log;

/// Returns the lines of this level about a server.
fn lines(server: &PostgresServer, level: Level) -> Vec<String> {
    let (lines, folder) = (LINES.lock().unwrap(), server.folder().display().to_string());
    let of_server =
        lines.iter().filter(|(of, line)| *of == level && line.contains(&folder) && line.contains("_locks"));
    of_server.map(|(_, line)| line.clone()).collect()
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().ends_with("postgres::fitness")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
                let _ = write!(self.0, "{value:?} ");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        LINES.lock().unwrap().push((*event.metadata().level(), text.0));
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Two services with a schema each resolve one name to two tables, and would both hold each lock.
#[tokio::test]
async fn a_second_table_of_the_same_name_is_not_created_without_a_warning_that_names_both() {
    tracing::subscriber::set_global_default(Log).unwrap();
    let server = PostgresServer::start(&[]);
    for user in ["svc1", "svc2"] {
        server.query(&format!("CREATE ROLE {user} LOGIN; CREATE SCHEMA {user} AUTHORIZATION {user}"));
    }
    let connect = async |user: &str, rest: &str| {
        let folder = server.folder().display();
        let url = format!("postgres:///postgres?host={folder}&user={user}&create_table=true{rest}");
        LockManager::connect(&url).await.unwrap()
    };
    connect("svc1", "").await;
    assert!(lines(&server, Level::INFO).iter().any(|line| line.contains("svc1.distributed_locks")));
    assert_eq!(lines(&server, Level::WARN).len(), 0);
    // When it is created, and by each process that may be the one that took another one than was meant.
    for number in 1..=2 {
        connect("svc2", "").await;
        let warnings = lines(&server, Level::WARN);
        assert_eq!(warnings.len(), number, "{warnings:?}");
        let last = warnings.last().unwrap();
        assert!(last.contains("svc1.distributed_locks") && last.contains("svc2.distributed_locks"), "{last}");
    }
    // With its schema, it is the one that was meant.
    connect("svc2", "&table=svc2.distributed_locks").await;
    assert_eq!(lines(&server, Level::WARN).len(), 2);
    server.query("DROP TABLE svc2.distributed_locks");
    connect("svc2", "&table=svc2.distributed_locks").await;
    assert_eq!(lines(&server, Level::WARN).len(), 3);
}
