//! URLs as they are copied from elsewhere, and servers that are not what the URL says.

use lock_runtime::{LockErrorKind, LockManager, backend::postgres::TABLE};

use super::{LONG, MS, url};
use crate::support::{
    postgres_server::{PostgresServer, USER},
    proxy::{Proxy, Upstream},
};

#[tokio::test]
async fn the_folder_of_a_socket_is_found_in_both_forms() {
    let server = PostgresServer::start(&[]);
    server.query(TABLE);
    let folder = server.folder().display();
    server
        .query(&format!("ALTER ROLE {USER} PASSWORD 'p@ss/w#rd'; GRANT ALL ON distributed_locks TO {USER}"));
    for url in [
        format!("postgresql://{USER}:p%40ss%2Fw%23rd@/postgres?host={folder}"),
        format!("postgresql:///postgres?user={USER}&password=p@ss/w%23rd&host={folder}"),
    ] {
        let locks = LockManager::connect(&url).await.unwrap();
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_password_that_the_driver_does_not_send_is_named_as_the_cause() {
    let server = PostgresServer::start(&[]);
    server.query(&format!("ALTER ROLE {USER} PASSWORD 'canary🔒'"));
    let url = url(&server, "").replace("user=postgres", &format!("user={USER}&password=canary🔒"));
    let error = LockManager::connect(&url).await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("SASLprep"), "{error}");
    assert!(!format!("{error:?}").contains("canary"), "{error:?}");
}

#[tokio::test]
async fn row_security_is_named_when_it_hides_rows() {
    let server = PostgresServer::start(&[]);
    server.query(TABLE);
    server.query(&format!(
        "ALTER ROLE {USER} PASSWORD 'secret'; GRANT ALL ON distributed_locks TO {USER}; ALTER TABLE distributed_locks \
         ENABLE ROW LEVEL SECURITY; CREATE POLICY reads ON distributed_locks FOR SELECT USING (true); CREATE POLICY adds \
         ON distributed_locks FOR INSERT WITH CHECK (true)"
    ));
    // A server beside many others may take seconds to accept a connection.
    let of_user = url(&server, "&connect_timeout=30s")
        .replace("user=postgres", &format!("user={USER}&password=secret"));
    for scheme in ["postgres:", "postgres+advisory:"] {
        let error = LockManager::connect(&of_user.replace("postgres:", scheme)).await.unwrap_err();
        assert!(error.is_permanent() && error.to_string().contains("row security is on"), "{error}");
    }
    // For the owner of the table, it is off.
    LockManager::connect(&url(&server, "")).await.unwrap();
    server.query(&format!("CREATE POLICY everything ON distributed_locks TO {USER} USING (true)"));
    let locks = LockManager::connect(&of_user).await.unwrap();
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    server.query("DROP POLICY everything ON distributed_locks; DROP POLICY adds ON distributed_locks");
    let error = locks.lock("new").wait(LONG).acquire().await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("row security is on"), "{error}");
}

#[tokio::test]
async fn the_stores_on_redis_say_that_postgresql_does_not_speak_redis() {
    let server = PostgresServer::start(&[]);
    let proxy = Proxy::start(Upstream::Unix(server.socket()));
    for scheme in ["redis", "redisson"] {
        let error = LockManager::connect(&format!("{scheme}://{}", proxy.address())).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
        assert!(error.to_string().contains("does it speak Redis?"), "{error}");
    }
}

#[tokio::test]
async fn a_lock_is_released_after_the_program_has_closed_its_pool() {
    let server = PostgresServer::start(&[]);
    server.query(TABLE);
    let pool = super::pool(&server);
    let locks = LockManager::new(lock_runtime::backend::Postgres::from_pool(pool.clone()));
    let guard = locks.lock("k").acquire().await.unwrap();
    pool.close().await;
    guard.release().await.unwrap();
    assert_eq!(server.value("SELECT count(owner) FROM distributed_locks").as_deref(), Some("0"));
    let error = locks.lock("k").wait(100 * MS).acquire().await.unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("has closed its pool"), "{error}");
}
