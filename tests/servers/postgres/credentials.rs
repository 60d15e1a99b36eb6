//! Credentials that change, and connections that are refused.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use lock_runtime::{
    LockErrorKind, LockManager,
    backend::{Backend, Credentials, Postgres, PostgresAdvisory, postgres::TABLE},
};

use super::{LONG, MS};
use crate::support::postgres_server::{PostgresServer, USER};

fn server() -> PostgresServer {
    let server = PostgresServer::start(&[]);
    server.query(TABLE);
    server.query(&format!("GRANT ALL ON ALL TABLES IN SCHEMA public TO {USER}"));
    server
}

#[tokio::test]
async fn each_new_connection_asks_for_the_credentials_of_the_moment() {
    let server = server();
    let current = Arc::new(Mutex::new(String::new()));
    let change_to = |password: &str| {
        server.query(&format!("ALTER ROLE {USER} PASSWORD '{password}'"));
        password.clone_into(&mut current.lock().unwrap());
        server.terminate_clients();
    };
    let provider = || {
        let current = Arc::clone(&current);
        move || {
            let password = current.lock().unwrap().clone();
            async move { Ok::<_, std::io::Error>(Credentials::new(USER, password)) }
        }
    };
    let url =
        |scheme: &str, rest: &str| format!("{scheme}:///postgres?host={}{rest}", server.folder().display());
    change_to("first");
    let stores: [Box<dyn Fn() -> LockManager>; 2] = [
        Box::new(|| LockManager::new(Postgres::with_credentials(&url("postgres", ""), provider()).unwrap())),
        Box::new(|| {
            let url = url("postgres+advisory", "&session_timeout=2s");
            LockManager::new(PostgresAdvisory::with_credentials(&url, provider()).unwrap())
        }),
    ];
    for (number, store) in stores.iter().enumerate() {
        let locks = store().ttl(2000 * MS);
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
        change_to(&format!("next {number}"));
        let guard = locks.lock("k").wait(LONG).acquire().await.unwrap();
        let began = Instant::now();
        while began.elapsed() < 4000 * MS {
            assert!(guard.is_valid(), "lost after {:?}", began.elapsed());
            tokio::time::sleep(10 * MS).await;
        }
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn credentials_that_are_not_there_yet_are_asked_for_again() {
    let server = server();
    server.query(&format!("ALTER ROLE {USER} PASSWORD 'right'"));
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let provide = move || {
        *count.lock().unwrap() += 1;
        let number = *count.lock().unwrap();
        async move {
            match number {
                1 => Err("the vault is sealed"),
                2 => Ok(Credentials::new(USER, "wrong")),
                3 => std::future::pending().await,
                _ => Ok(Credentials::new(USER, "right")),
            }
        }
    };
    let url = format!("postgres:///postgres?host={}&connect_timeout=300ms", server.folder().display());
    let store = Postgres::with_credentials(&url, provide).unwrap();
    for word in ["provided no credentials", "password authentication failed", "within 300ms"] {
        let error = store.ping().await.unwrap_err();
        assert!(error.is_retryable() && error.to_string().contains(word), "{error}");
        assert!(!format!("{error:?}").contains("wrong"), "{error:?}");
        if word.starts_with("provided") {
            let source = std::error::Error::source(&error).unwrap().to_string();
            assert_eq!(source, "the vault is sealed");
        }
        tokio::time::sleep(100 * MS).await;
    }
    let locks = LockManager::new(store);
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_lock_is_not_granted_once_its_renewals_could_not_connect_again() {
    let server = server();
    server.query(&format!("ALTER ROLE {USER} PASSWORD 'secret'"));
    let url = format!("postgres:///postgres?host={}&user={USER}&password=secret", server.folder().display());
    let locks = LockManager::connect(&url).await.unwrap().ttl(800 * MS);
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    server.query(&format!("ALTER ROLE {USER} CONNECTION LIMIT 1"));
    server.terminate_clients();
    // That the idle connection has ended is found when the first lock is to be renewed.
    let mut granted = 0;
    let error = loop {
        match locks.lock("k").wait(LONG).acquire().await {
            Ok(guard) => guard.lost().await,
            Err(error) => break error,
        }
        granted += 1;
    };
    assert!(granted <= 1, "{granted} locks were granted");
    assert_eq!(error.kind(), LockErrorKind::Overloaded, "{error}");
    assert!(error.to_string().contains("too many connections for role"), "{error}");
    server.query(&format!("ALTER ROLE {USER} CONNECTION LIMIT -1"));
    tokio::time::sleep(100 * MS).await;
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
}
