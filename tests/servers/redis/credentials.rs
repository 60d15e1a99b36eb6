//! Credentials that change, and connections that are refused: in all stores on Redis.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use lock_runtime::{
    LockManager,
    backend::{Backend, Credentials, Redis, Redisson, Redlock},
};

use super::LONG;
use crate::support::{
    proxy::{Proxy, Upstream},
    redis_server::RedisServer,
};

const TTL: Duration = Duration::from_millis(800);

fn allow(server: &RedisServer, password: &str) {
    let user = ["ACL", "SETUSER", "locks", "reset", "on", &format!(">{password}"), "~*", "&*", "+@all"];
    assert_eq!(server.command(&user), crate::support::resp::Value::Text("OK".into()));
}

#[tokio::test]
async fn each_new_connection_asks_for_the_credentials_of_the_moment() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start(&[])).collect();
    let proxies: Vec<_> =
        servers.iter().map(|server| Proxy::start(Upstream::Unix(server.socket().into()))).collect();
    let current = Arc::new(Mutex::new("first".to_owned()));
    for server in &servers {
        allow(server, "first");
    }
    let provider = || {
        let current = Arc::clone(&current);
        move || {
            let password = current.lock().unwrap().clone();
            async move { Ok::<_, std::io::Error>(Credentials::new("locks", password)) }
        }
    };
    let address = |number: usize| proxies[number].address();
    let (one, all) = (address(0), format!("{},{},{}", address(0), address(1), address(2)));
    // A server that was started a moment ago has no vote for `max_ttl` and two seconds.
    let redlock = Redlock::with_credentials(&format!("redlock://{all}?max_ttl=1s"), provider()).unwrap();
    let began = Instant::now();
    while let Err(error) = redlock.ping().await {
        assert!(began.elapsed() < LONG, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let stores = [
        LockManager::new(Redis::with_credentials(&format!("redis://{one}"), provider()).unwrap()),
        LockManager::new(Redisson::with_credentials(&format!("redisson://{one}"), provider()).unwrap()),
        LockManager::new(redlock),
    ];
    for (number, locks) in stores.into_iter().enumerate() {
        let locks = locks.ttl(TTL);
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
        let password = format!("next {number}");
        for server in &servers {
            allow(server, &password);
        }
        current.lock().unwrap().clone_from(&password);
        proxies.iter().for_each(Proxy::cut);
        let guard = locks.lock("k").wait(LONG).acquire().await.unwrap();
        let users = servers[0].command(&["CLIENT", "LIST"]).text();
        assert!(users.contains("user=locks"), "{users}");
        let began = Instant::now();
        while began.elapsed() < 2 * TTL {
            assert!(guard.is_valid(), "lost after {:?}", began.elapsed());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_wrong_password_that_may_change_is_tried_again_and_never_shown() {
    let server = RedisServer::start(&[]);
    allow(&server, "right");
    let asked = Arc::new(Mutex::new(0));
    let provide = move || {
        *asked.lock().unwrap() += 1;
        let first = *asked.lock().unwrap() == 1;
        async move {
            Ok::<_, std::io::Error>(Credentials::new("locks", if first { "wrong-one" } else { "right" }))
        }
    };
    let store =
        Redis::with_credentials(&format!("redis+unix://{}", server.socket().display()), provide).unwrap();
    let error = store.ping().await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("credentials"), "{error}");
    assert!(!format!("{error:?} {store:?}").contains("wrong-one"), "{error:?}");
    tokio::time::sleep(Duration::from_millis(100)).await;
    store.ping().await.unwrap();
    let shown = format!("{:?}", Credentials::new("locks", "wrong-one"));
    assert!(!shown.contains("wrong-one"), "{shown}");
}
