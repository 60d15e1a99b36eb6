//! Entries in the format of a later version, next to those of this one.

use lock_runtime::LockManager;

use super::{LONG, overheard::Overheard, url};
use crate::support::{redis_server::RedisServer, resp::Value, until};

#[tokio::test]
async fn a_holder_and_a_waiter_in_a_mode_of_a_later_version_take_part() {
    let server = RedisServer::start(&[]);
    let overheard = Overheard::on(&server).await;
    let locks = LockManager::connect(&url(&server, "")).await.unwrap();
    let reader = "1r:1@elsewhere/label:00000000000000aa:000102030405060708090a0b0c0d0e0f";
    server.command(&["SET", "lock:k", &format!("{reader}:1700000000000000"), "PX", "1500"]);
    let waiter = {
        let lock = locks.lock("k").wait(LONG);
        tokio::spawn(async move { lock.acquire().await })
    };
    until("the holder is notified that another client waits", || match overheard.text() {
        text if text.contains("contended 1700000000000000 lock:k") => Ok(()),
        text => Err(text),
    })
    .await;
    let guard = waiter.await.unwrap().unwrap();

    let time = server.command(&["TIME"]).texts();
    let place = format!("30000 {}{:0>6} 7 lock:~1:inbox:00000000000000aa", time[0], time[1]);
    server.command(&["RPUSH", "lock:{lock:k}:~1:queue", reader]);
    server.command(&["HSET", "lock:{lock:k}:~1:places", reader, &place]);
    guard.release().await.unwrap();
    until("the waiter is granted the lock", || match overheard.text() {
        text if text.contains("granted 7 ") => Ok(()),
        text => Err(text),
    })
    .await;
    let Value::Text(holder) = server.command(&["GET", "lock:k"]) else { panic!("it is not held") };
    assert!(holder.starts_with(reader), "{holder}");
    assert!(locks.lock("k").try_acquire().await.unwrap().is_none());
}
